"""A bundle that is as good stays, one that is worse goes, however often the trial is looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from core.rollout.trial import ALL, ERROR_RATE, FEWEST, AcceptanceStats, ByTask, Comparison, JudgedAnswer, Worse, plus
from core.rollout.trial import references as enough

BEFORE = {"math": 0.7, "code": 0.6, "chat": 0.4}  # mean acceptance by task


def answers(means: Mapping[str, float], count: int, rng: np.random.Generator) -> Iterator[JudgedAnswer]:
    """Answers of all tasks in turn, that differ as real ones do: a standard deviation of about a fifth."""
    for number in range(count):
        task = list(means)[number % len(means)]
        judged = int(rng.integers(8, 60))
        yield JudgedAnswer(task, judged, int(rng.binomial(judged, rng.beta(5 * means[task], 5 * (1 - means[task])))))


def references(count: int, rng: np.random.Generator) -> ByTask:
    stats: ByTask = {}
    for answer in answers(BEFORE, count, rng):
        stats = plus(stats, answer)
    return enough(stats)


def outcome(references: ByTask, means: Mapping[str, float], count: int, rng: np.random.Generator) -> Worse | None:
    comparison = Comparison.with_references(references)
    for answer in answers(means, count, rng):
        comparison, worse = comparison.plus(answer)
        if worse is not None:
            return worse
    return None


@pytest.mark.thorough
def test_a_bundle_that_is_as_good_is_rolled_back_no_more_often_than_stated() -> None:
    """200 trials of 1,000 answers, looked at after every one, held to references of 90 to 900 answers."""
    rng, trials = np.random.default_rng(1), 200
    rolled_back = [
        outcome(references(int(rng.integers(90, 900)), rng), BEFORE, 1000, rng) is not None for _ in range(trials)
    ]
    assert sum(rolled_back) <= trials * ERROR_RATE + 2 * math.sqrt(trials * ERROR_RATE)


@pytest.mark.parametrize("poisoned", ["math", "code"])
def test_one_poisoned_draft_among_three_is_found_within_300_answers(poisoned: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        worse = outcome(references(600, rng), BEFORE | {poisoned: 0.2}, 300, rng)
        assert worse is not None
        assert worse.task in (poisoned, ALL)
        assert worse.acceptance < worse.reference


def test_what_has_too_few_answers_is_held_to_nothing() -> None:
    rng = np.random.default_rng(3)
    few = references(FEWEST - 1, rng)
    assert few == {}
    assert outcome(few, dict.fromkeys(BEFORE, 0.01), 500, rng) is None
    assert set(references(FEWEST * 2, rng)) == {ALL}  # 20 answers of each task


def test_the_finding_names_the_task_and_both_figures() -> None:
    assert "in 12 answers of math, those before 0.70" in str(Worse("math", 12, 0.2, 0.7))
    assert "in 12 answers, those before" in str(Worse(ALL, 12, 0.2, 0.7))


def test_stats_have_mean_and_deviation() -> None:
    shares, stats = [0.5, 0.25, 1.0, 0.75], AcceptanceStats()
    for share in shares:
        stats = stats.plus(share)
    assert (stats.answers, stats.mean) == (4, float(np.mean(shares)))
    assert stats.squares == pytest.approx(np.var(shares) * 4)
    assert stats.lower_limit(0.5) == pytest.approx(stats.mean)
    assert stats.lower_limit(0.01) < stats.lower_limit(0.1) < stats.mean
