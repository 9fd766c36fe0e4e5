"""Answers held to a grammar, of the shipped family: speculation changes none of them, and each is valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.bench.structured import BAR, FAMILY, Tally, main, models, share, tallied
from tests.bench.structured_requests import CALLS, JSON, NUM_REQUESTS, questions
from tests.bench.structured_run import CONTENDERS, HOSTILE, PLAIN, WITHOUT_GRAMMAR, Contender

STREAMS = 16
LESS = {name for name in WITHOUT_GRAMMAR.values() if name != PLAIN}  # there only to be compared with


def assert_same_and_valid(tallies: dict[str, Tally], count: int) -> None:
    for name, tally in tallies.items():
        assert tally.answers == count
        assert (tally.differ, tally.invalid) == (0, 0), (name, tally.wrong[:3])
        assert tally.accepted["grammar"] == tally.proposed["grammar"]
    assert tallies[PLAIN].cut < count / 4
    for contender in (one for one in CONTENDERS if one.name in tallies):
        tally = tallies[contender.name]
        assert (tally.proposed["draft"] > 0) == bool(contender.draft)
        assert (tally.proposed["grammar"] > 0) == ("grammar" in contender.lookup)
        assert tally.accepted["draft"] < tally.proposed["draft"] or not contender.draft
    hostile = next(tallies[contender.name] for contender in CONTENDERS if contender.draft == HOSTILE)
    assert hostile.accepted["draft"] > 0
    for kind in (JSON, CALLS):
        assert share(tallies["grammar alone"].passes_of[kind], tallies[PLAIN].passes_of[kind]).value <= BAR


def run(count: int, contenders: Sequence[Contender] = CONTENDERS) -> dict[str, Tally]:
    target, tokenizer, drafts = models(FAMILY, STREAMS)
    return tallied(target, tokenizer, drafts, questions(tokenizer, count), STREAMS, lambda: None, contenders)


def test_speculation_changes_no_answer_in_a_grammar_and_all_are_valid() -> None:
    assert_same_and_valid(run(30, [one for one in CONTENDERS if one.name not in LESS]), 30)


@pytest.mark.soak  # some minutes
def test_speculation_changes_none_of_1000_answers_in_a_grammar_and_all_are_valid() -> None:
    assert_same_and_valid(run(NUM_REQUESTS), NUM_REQUESTS)


def test_the_requests_are_of_all_schemas_and_tools_at_both_temperatures() -> None:
    _, tokenizer, _ = models(FAMILY, 1)
    asked = questions(tokenizer)
    assert len(asked) == NUM_REQUESTS
    assert {kind: len({one.of for one in asked if one.kind == kind}) for kind in (JSON, CALLS)} == {
        JSON: 200,
        CALLS: 40,
    }
    assert {one.request.params.temperature for one in asked} == {0.0, 0.8}
    assert all(one.request.params.grammar for one in asked)
    assert [one.request for one in questions(tokenizer, 9)] == [one.request for one in asked[:9]]


def test_a_share_of_passes_is_over_all_schemas() -> None:
    assert share(Counter(a=1, b=8, c=9), Counter(a=2, b=20, c=10)).value == 18 / 32


def test_the_bench_writes_what_it_found(tmp_path: Path) -> None:
    main(["--requests", "3", "--streams", "2", "--out", str(tmp_path)])
    assert "| grammar alone | 3 | 0 | 0 |" in (tmp_path / "structured.md").read_text()
    assert (tmp_path / "structured.json").exists()
