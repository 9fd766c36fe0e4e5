"""The tokens that the grammar of an answer forces: where it allows one only, that one will come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.verify.sources.source import Generation, GuessedToken, ProposalSource

if TYPE_CHECKING:
    from core.grammar.matching import GrammarState


class ForcedTokens(ProposalSource):
    """Guesses wherever a session has a grammar."""

    def open(self, generation: Generation) -> _GrammarSession | None:
        return None if generation.grammar is None else _GrammarSession(generation.grammar)


@dataclass(frozen=True)
class _GrammarSession:
    grammar: GrammarState
    chances: None = None  # it is never wrong

    def guess(self, limit: int) -> Iterator[GuessedToken]:
        return map(GuessedToken, self.grammar.forced()[:limit])
