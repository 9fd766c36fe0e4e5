"""A bundle that is as good stays, one that is worse goes, however often the trial is looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from core.bundle.trial import ALL, ERROR_RATE, FEWEST, Answer, Record, Records, Trial, Worse

BEFORE = {"math": 0.7, "code": 0.6, "chat": 0.4}  # mean acceptance by task


def answers(means: Mapping[str, float], count: int, rng: np.random.Generator) -> Iterator[Answer]:
    """Answers of all tasks in turn, that differ as real ones do: a standard deviation of about a fifth."""
    for number in range(count):
        task = list(means)[number % len(means)]
        judged = int(rng.integers(8, 60))
        yield Answer(task, judged, int(rng.binomial(judged, rng.beta(5 * means[task], 5 * (1 - means[task])))))


def references(count: int, rng: np.random.Generator) -> dict[str, Record]:
    records = Records()
    for answer in answers(BEFORE, count, rng):
        records.add(answer)
    return records.references()


def outcome(trial: Trial, means: Mapping[str, float], count: int, rng: np.random.Generator) -> Worse | None:
    found = (trial.observe(answer) for answer in answers(means, count, rng))
    return next((worse for worse in found if worse is not None), None)


@pytest.mark.thorough
def test_a_bundle_that_is_as_good_is_rolled_back_no_more_often_than_stated() -> None:
    """200 trials of 1,000 answers, looked at after every one, held to references of 90 to 900 answers."""
    rng, trials = np.random.default_rng(1), 200
    found = [
        outcome(Trial(references(int(rng.integers(90, 900)), rng)), BEFORE, 1000, rng) is not None
        for _ in range(trials)
    ]
    assert sum(found) <= trials * ERROR_RATE + 2 * math.sqrt(trials * ERROR_RATE)


@pytest.mark.parametrize("poisoned", ["math", "code"])
def test_one_poisoned_draft_among_three_is_found_within_300_answers(poisoned: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        trial = Trial(references(600, rng))
        worse = outcome(trial, BEFORE | {poisoned: 0.2}, 300, rng)
        assert worse is not None
        assert worse.task in (poisoned, ALL)
        assert worse.acceptance < worse.reference


def test_what_has_too_few_answers_is_held_to_nothing() -> None:
    rng = np.random.default_rng(3)
    few = references(FEWEST - 1, rng)
    assert few == {}
    assert outcome(Trial(few), dict.fromkeys(BEFORE, 0.01), 500, rng) is None
    assert set(references(FEWEST * 2, rng)) == {ALL}  # 20 answers of each task


def test_a_reference_does_not_change_with_the_answers_after_it() -> None:
    records = Records()
    for _ in range(FEWEST):
        records.add(Answer("math", 10, 8))
    found = records.references()
    records.add(Answer("math", 10, 0))
    assert (found[ALL].answers, found["math"].mean) == (FEWEST, pytest.approx(0.8))


def test_the_finding_names_the_task_and_both_figures() -> None:
    assert "in 12 answers of math, those before 0.70" in str(Worse("math", 12, 0.2, 0.7))
    assert "in 12 answers, those before" in str(Worse(ALL, 12, 0.2, 0.7))


def test_a_record_has_mean_and_deviation() -> None:
    shares, record = [0.5, 0.25, 1.0, 0.75], Record()
    for share in shares:
        record.add(share)
    assert (record.answers, record.mean) == (4, np.mean(shares))
    assert record.squares == pytest.approx(np.var(shares) * 4)
    assert record.lowest(0.5) == pytest.approx(record.mean)
    assert record.lowest(0.01) < record.lowest(0.1) < record.mean
