"""The answer that the client expects, such as a file that is to be changed a little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from core.policy.acceptance import TokenChances
from core.verify.sources.source import Generation, GuessedToken, ProposalSource
from core.verify.sources.suffix_index import LONGEST_MATCH, Next, TextIndex, guesses

if TYPE_CHECKING:
    from core.verify.commit import Chain


class ClientPrediction(ProposalSource):
    """Guesses for requests with a prediction."""

    def open(self, generation: Generation) -> Prediction | None:
        prediction = generation.request.prediction
        return Prediction(prediction, generation.chain) if prediction else None


class Prediction:
    """A prediction, followed in place: where the answer differs, it is taken to differ by a token.

    Where it differs by more, the place is found again as soon as the ends of both agree. `chances` are its own: a
    client predicts well or does not.
    """

    def __init__(self, tokens: Sequence[int], chain: Chain) -> None:
        self.chances = TokenChances()
        self._tokens = tokens
        self._chain = chain
        self._index = TextIndex(tokens)
        self._place = 0  # the index of the token that comes next
        self._agreed = 0  # tokens before the place that the answer has, too
        self._num_followed = chain.prompt_length  # tokens of the chain

    def guess(self, limit: int) -> Iterator[GuessedToken]:
        chain = self._chain
        self._follow(chain.tokens[self._num_followed :])
        match = self._index.match(chain.tokens[max(chain.prompt_length, len(chain.tokens) - LONGEST_MATCH) :])
        if match.length > self._agreed:
            self._agreed = match.length
            self._place = min((place for _, place in match.places), key=lambda place: abs(place - self._place))
        following = self._tokens[self._place : self._place + limit]
        return guesses(self._agreed, (Next(token, 1, 1) for token in following))

    def _follow(self, tokens: Sequence[int]) -> None:
        """The answer has grown by these."""
        for token in tokens:
            agrees = self._place < len(self._tokens) and self._tokens[self._place] == token
            self._agreed = self._agreed + 1 if agrees else 0
            self._place += 1
        self._num_followed += len(tokens)
