"""Prompt lookup: the n-gram at the end of prompt and answer, and what followed it earlier in the same text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from core.policy.acceptance import TokenChances, band
from core.verify.sources.source import Generation, GuessedToken, ProposalSource
from core.verify.sources.suffix_index import TextIndex, continuation, guesses


class OwnText(ProposalSource):
    """Guesses for every session; the chances are those of all that are about as hot."""

    def __init__(self) -> None:
        self._chances = defaultdict[int, TokenChances](TokenChances)

    def open(self, generation: Generation) -> _OwnTextSession:
        tokens = generation.chain.tokens
        chances = self._chances[band(generation.request.params.temperature)]
        return _OwnTextSession(chances, tokens, TextIndex(tokens))


@dataclass(frozen=True)
class _OwnTextSession:
    chances: TokenChances
    tokens: list[int]
    index: TextIndex

    def guess(self, limit: int) -> Iterator[GuessedToken]:
        match = self.index.match(self.tokens)
        return guesses(match.length, continuation(match, limit))
