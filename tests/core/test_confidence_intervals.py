"""The paired bootstrap against what is known about it."""

from __future__ import annotations

import numpy as np
import pytest

from core.confidence_intervals import compare
from core.replay.replay import AcceptanceCounts

RNG = np.random.default_rng(5)
ACCEPTED = RNG.integers(20, 60, size=(2, 200)) + np.array([[4], [0]])
OURS, THEIRS = ([AcceptanceCounts(100, 50, 100, int(n)) for n in row] for row in ACCEPTED)
PROMPTS = range(200)


def test_with_equal_weights_it_is_the_interval_of_a_mean() -> None:
    differences = (ACCEPTED[0] - ACCEPTED[1]) / 100
    error = 1.96 * differences.std() / np.sqrt(200)
    found = compare(OURS, THEIRS, PROMPTS)
    assert found.difference == pytest.approx(differences.mean())
    assert found.low == pytest.approx(differences.mean() - error, abs=0.05 * error)
    assert found.high == pytest.approx(differences.mean() + error, abs=0.05 * error)
    assert found.better


def test_the_other_way_round_is_worse() -> None:
    found = compare(THEIRS, OURS, PROMPTS)
    assert found.high < 0.0
    assert not found.better


def test_a_draft_is_no_better_than_itself() -> None:
    assert compare(OURS, OURS, PROMPTS) == (0.0, 0.0, 0.0)
    assert not compare(OURS, OURS, PROMPTS).better


def test_answers_to_one_prompt_count_as_one() -> None:
    doubled = compare(OURS * 2, THEIRS * 2, [*PROMPTS, *PROMPTS])
    assert doubled == pytest.approx(compare(OURS, THEIRS, PROMPTS))
    apart = compare(OURS * 2, THEIRS * 2, range(400))
    assert apart.high - apart.low < 0.8 * (doubled.high - doubled.low)


def test_long_answers_weigh_more() -> None:
    ours = [AcceptanceCounts(0, 0, 1000, 900), AcceptanceCounts(0, 0, 10, 0)]
    theirs = [AcceptanceCounts(0, 0, 1000, 800), AcceptanceCounts(0, 0, 10, 10)]
    assert compare(ours, theirs, "ab").difference == pytest.approx(90 / 1010)


def test_prompts_without_proposals_do_not_spoil_it() -> None:
    found = compare([AcceptanceCounts(0, 0, 0, 0), AcceptanceCounts(9, 3, 12, 6)], [AcceptanceCounts()] * 2, "ab")
    assert (found.difference, found.low, found.high) == (0.5, 0.0, 0.5)


def test_tokens_per_pass() -> None:
    found = compare([AcceptanceCounts(9, 3, 12, 6)], [AcceptanceCounts(9, 9, 12, 0)], "a", "tokens_per_pass")
    assert found == (2.0, 2.0, 2.0)


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="no records"):
        compare([], [], [])
