"""The benchmark of a round's parts: made-up rounds come apart exactly, real ones of the smallest size add up."""

from __future__ import annotations

import argparse
import json
import multiprocessing
from pathlib import Path

import pytest

from tests.bench import rounds
from tests.bench.expanded import target
from tests.bench.items import first_held_out
from tests.bench.rounds import Round
from tests.bench.timed_models import Span, Spans

TARGETS = [Span(0.0, 8.0), Span(10.0, 18.0), Span(24.0, 32.0), Span(40.0, 48.0), Span(49.0, 57.0)]
VERDICTS = [8.5, 18.5, 33.0, 48.25, 57.5]
DRAFTS = [Span(9.0, 9.5), Span(19.0, 20.0), Span(20.25, 21.0), Span(21.5, 23.0), Span(34.0, 35.0)]


def test_a_round_comes_apart_into_all_of_its_time() -> None:
    first, second, _ = rounds.rounds(TARGETS, DRAFTS, VERDICTS)
    assert first == Round(TARGETS[1], 18.5, DRAFTS[1:4], 24.0)
    assert first.parts() == {
        rounds.TARGET: 8.0,
        rounds.AFTER: 0.5,
        rounds.TO_DRAFT: 0.5,
        rounds.DRAFT: 3.25,
        rounds.BETWEEN: 0.75,
        rounds.TO_PASS: 1.0,
        rounds.CRITICAL: 2.25,
    }
    assert second.parts()[rounds.BETWEEN] == 0.0
    for one in (first, second):
        _adds_up(one)


def test_a_round_counts_if_all_its_drafting_lies_between_verdict_and_next_pass() -> None:
    early, between, late = Span(8.25, 9.25), Span(9.5, 11.0), Span(11.25, 12.5)

    def left_out(*drafts: Span) -> str | None:
        return Round(Span(0.0, 8.0), 9.0, drafts, 12.0).left_out

    assert left_out(between) is None
    assert left_out() == rounds.NOTHING
    assert left_out(early, between) == rounds.EARLY
    assert left_out(between, late) == rounds.LATE


def test_what_does_not_count_is_told() -> None:
    found = rounds.sifted(rounds.rounds(TARGETS, DRAFTS, VERDICTS))
    assert len(found.counted) == 2
    assert found.left_out == {rounds.NOTHING: 1}
    text = rounds.table(found)
    assert "| the target's pass | 8000.000 | 8000.000 | 8000.000 |" in text
    assert "2 of 3 rounds, 2.0 tokens drafted in each; in 1, nothing was drafted." in text
    with pytest.raises(SystemExit, match="no round counts of 3; in 3, nothing was drafted"):
        rounds.sifted(rounds.rounds(TARGETS, [], VERDICTS))


def test_what_another_process_notes_is_seen_here() -> None:
    spans = Spans(3)
    process = multiprocessing.get_context("spawn").Process(target=spans.note, args=(Span(1.5, 2.5, 4),))
    process.start()
    process.join()
    assert spans.noted() == [Span(1.5, 2.5, 4)]


def test_real_rounds_are_measured(tmp_path: Path) -> None:
    """Which of them count is the machine's affair: a busy one may find the tiny target's draft not worth asking."""
    measured = rounds.measure(target("tiny", tmp_path), first_held_out(1), max_tokens=24, length=4, threads=1)
    assert measured
    for one in measured:
        assert one.target.began < one.target.ended <= one.verdict <= one.next_pass
        assert all(draft.began < draft.ended for draft in one.drafts)
        if one.left_out is None:
            _adds_up(one)


def test_what_was_found_is_left_as_text_and_figures(tmp_path: Path) -> None:
    chosen = argparse.Namespace(size="tiny", threads=1, out=tmp_path)
    rounds.tell(chosen, rounds.rounds(TARGETS, DRAFTS, VERDICTS))
    found = json.loads((tmp_path / "rounds.json").read_text())
    assert (found["rounds"], found["left_out"]) == (2, {rounds.NOTHING: 1})
    assert list(found["ms"]) == list(rounds.rounds(TARGETS, DRAFTS, VERDICTS)[0].parts())
    assert found["ms"][rounds.CRITICAL]["p50"] == pytest.approx(1e3 * (2.25 + 6.0) / 2)
    assert "tiny target in bf16, 1 thread(s)" in (tmp_path / "rounds.md").read_text()


def _adds_up(one: Round) -> None:
    parts = one.parts()
    assert min(parts.values()) >= 0.0
    critical = parts[rounds.TO_DRAFT] + parts[rounds.BETWEEN] + parts[rounds.TO_PASS]
    assert parts[rounds.CRITICAL] == pytest.approx(critical, abs=1e-9)
    assert parts[rounds.AFTER] + parts[rounds.CRITICAL] + parts[rounds.DRAFT] == pytest.approx(one.whole, abs=1e-9)
