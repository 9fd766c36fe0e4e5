"""What followed the last tokens in earlier answers, each client's for itself.

What is proposed shows in how long a pass takes. So answers are kept apart by owner, and nobody can learn from the speed
of an answer what others were told.

They are not kept apart by task: whose draft proposes to a prompt, if any, may be another one the next time. Kept apart,
they would bring 0.8 % more tokens a pass (900 answers to six tasks of the family in turn, without drafts).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.policy.acceptance import TokenChances, band
from core.verify.sources.source import Generation, GuessedToken, ProposalSource
from core.verify.sources.suffix_index import LENGTHS, SuffixIndex, continuation, guesses

_SHARED = ""  # the owner of all requests that have none


class AnswerMemory:
    """Earlier answers by owner: at most so many tokens in all; the oldest answers make room."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._indices: dict[str, SuffixIndex] = {}
        self._answers: deque[tuple[str, list[int]]] = deque()
        self.num_tokens = 0

    def add(self, owner: str, answer: Sequence[int]) -> None:
        """Remember an answer, if it has an n-gram that a token follows and is not longer than the whole memory."""
        if not LENGTHS[-1] < len(answer) <= self._max_tokens:
            return
        text = list(answer)  # of its own, as the index tells texts apart by identity
        self._indices.setdefault(owner, SuffixIndex()).add(text)
        self._answers.append((owner, text))
        self.num_tokens += len(answer)
        while self.num_tokens > self._max_tokens:
            self._forget_oldest()

    def index(self, owner: str) -> SuffixIndex | None:
        """The answers of an owner; None if there are none."""
        return self._indices.get(owner)

    def _forget_oldest(self) -> None:
        owner, answer = self._answers.popleft()
        self.num_tokens -= len(answer)
        index = self._indices[owner]
        index.forget(answer)
        if not index:
            del self._indices[owner]


class EarlierAnswers(ProposalSource):
    """Guesses for requests that have an owner, from the owner's answers.

    At most `max_tokens` are remembered, over all owners. `without_owner` says whether requests that have no owner share
    one; otherwise nothing of them is remembered.
    """

    def __init__(self, max_tokens: int = 100_000, *, without_owner: bool = False) -> None:
        self._memory = AnswerMemory(max_tokens)
        self._chances = defaultdict[int, TokenChances](TokenChances)  # by band of temperatures
        self._without_owner = without_owner

    def open(self, generation: Generation) -> _AnswersSession | None:
        owner = self._owner(generation)
        if owner is None:
            return None
        chances = self._chances[band(generation.request.params.temperature)]
        return _AnswersSession(chances, self._memory, generation, owner)

    def finished(self, generation: Generation) -> None:
        owner = self._owner(generation)
        if generation.request.store and owner is not None:
            chain = generation.chain
            self._memory.add(owner, chain.tokens[chain.prompt_length :])

    def _owner(self, generation: Generation) -> str | None:
        owner = generation.request.owner
        return _SHARED if owner is None and self._without_owner else owner


@dataclass(frozen=True)
class _AnswersSession:
    chances: TokenChances
    memory: AnswerMemory
    generation: Generation
    owner: str

    def guess(self, limit: int) -> Iterator[GuessedToken]:
        index = self.memory.index(self.owner)
        if index is None:
            return iter(())
        match = index.match(self.generation.chain.tokens)
        return guesses(match.length, continuation(match, limit))
