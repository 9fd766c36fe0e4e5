"""A line: a chain of drafted tokens with a cache of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from core.draft.token_confidence import Confidence
from core.model.draft_tokens import DraftToken


class Line:
    """Drafted tokens beyond the committed ones, held in the model under `number`; the first `num_assumed` are assumed.

    `survival` is the chance that the `num_judged` tokens after the assumed ones are all accepted.
    """

    def __init__(self, number: int, chain: list[DraftToken], num_assumed: int = 0) -> None:
        self.number = number
        self.chain = chain
        self.num_assumed = num_assumed
        self.judge_anew()

    def judge_anew(self) -> None:
        """Forget the survival: a Commit has changed the confidence that it was made of, or its least value."""
        self.num_judged, self.survival = 0, 1.0

    @property
    def num_drafted(self) -> int:
        return len(self.chain) - self.num_assumed

    def agreement(self, tokens: Sequence[int]) -> int:
        """The number of leading tokens that the chain agrees with."""
        pairs = zip(tokens, self.chain, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].token, pairs))

    def end(self, limit: int, min_survival: float, confidence: Confidence) -> int | None:
        """The number of drafted tokens that the line ends after, at most `limit`; None if it has to be drafted on.

        It ends with the token at which the chance that all are accepted falls below `min_survival`.
        """
        for token in self.chain[self.num_assumed + self.num_judged : self.num_assumed + limit]:
            if self.survival < min_survival:
                break
            self.survival *= confidence.of(token.margin)
            self.num_judged += 1
        if self.survival < min_survival:
            return self.num_judged
        return limit if self.num_drafted >= limit else None

    def tokens(self, end: int | None) -> tuple[int, ...]:
        """The assumed tokens and as many drafted ones as `end` says; None is for all."""
        return tuple(token.token for token in self.chain[: None if end is None else self.num_assumed + end])
