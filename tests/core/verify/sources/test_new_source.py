"""A source that somebody adds: one class and one line make it propose, under its own name, and no token changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from core.policy.acceptance import TokenChances
from core.verify.engine import VerifyConfig
from core.verify.sources import DEFAULT, SOURCES
from core.verify.sources.source import Generation, GuessedToken, ProposalSource
from tests.core.toy import VOCAB_SIZE, plain_tokens, request
from tests.core.verify.bench import Bench


class Successors(ProposalSource):
    """Guesses the last token plus `step`, over and over."""

    def __init__(self, step: int = 0) -> None:
        self._step = step
        self._chances = TokenChances()

    def open(self, generation: Generation) -> SuccessorsSession:
        return SuccessorsSession(self._chances, generation, self._step)


@dataclass(frozen=True)
class SuccessorsSession:
    chances: TokenChances
    generation: Generation
    step: int

    def guess(self, limit: int) -> Iterator[GuessedToken]:
        last = self.generation.chain.tokens[-1]
        return (GuessedToken((last + self.step * (ahead + 1)) % VOCAB_SIZE) for ahead in range(limit))


@pytest.mark.parametrize("options", [{}, {"step": 1}])
def test_a_new_source_proposes_by_its_name_and_changes_no_token(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, int]
) -> None:
    monkeypatch.setitem(SOURCES, "successors", Successors)
    assert "successors" not in DEFAULT
    bench = Bench(VerifyConfig(lookup={"successors": options}))
    asked = request(60)
    [number] = bench.engine.open([asked])
    bench.finish()
    assert bench.tokens(number) == plain_tokens(asked)
    assert {run.source for run in bench.runs[number] if run.proposed} == {"successors"}
    assert bench.engine.counts["proposed_successors"] == bench.engine.counts["proposed"] > 0
