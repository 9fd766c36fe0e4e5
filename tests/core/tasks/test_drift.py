"""Drift is raised for traffic that changed and, within a stated share of trials, not for traffic that did not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.draft_key import GENERAL
from core.sampling.params import SamplingParams
from core.tasks.drift import BINS, Drift, Limits, Observation, distances, measure, stability_index
from core.tasks.identity import TaskCentroids
from core.traces.store import Proposals, Trace

TASKS = ("maths", "code", "chat", "chinese", "logic", GENERAL)
USUAL = (0.40, 0.25, 0.15, 0.10, 0.08, 0.02)
RATES = (0.5, 0.4, 0.2, 0.6, 0.5, 0.1)
TRIALS = 60
FALSE_SHARE = 0.02  # of trials without drift in which any of the figures may be raised, at 200 answers a side


def answers(
    count: int,
    rng: np.random.Generator,
    shares: Sequence[float] = USUAL,
    rates: Sequence[float] = RATES,
    farther: float = 0.0,
) -> list[Observation]:
    """Answers of this mix; the router is sure of some and not of others, and an answer has a rate of its own."""
    chosen = rng.choice(len(TASKS), count, p=np.array(shares) / sum(shares))
    found = []
    for task, sure in zip(chosen.tolist(), rng.uniform(0.5, 1.0, count).tolist(), strict=True):
        prior = dict.fromkeys(TASKS, (1 - sure) / len(TASKS))
        prior[TASKS[task]] += sure
        proposed = int(rng.integers(20, 200))
        rate = rng.beta(8 * rates[task], 8 * (1 - rates[task]))
        distance = min(1.0, float(rng.beta(4, 6)) + farther)
        found.append(Observation(TASKS[task], prior, distance, proposed, int(rng.binomial(proposed, rate))))
    return found


def raised(seed: int, count: int = 200, **changes: object) -> Drift:
    rng = np.random.default_rng(seed)
    return measure(answers(count, rng), answers(count, rng, **changes))  # type: ignore[arg-type]


@pytest.mark.thorough
def test_the_same_traffic_is_raised_in_no_more_than_the_stated_share_of_trials() -> None:
    found = [raised(seed) for seed in range(TRIALS)]
    assert all(drift.claimed for drift in found)
    assert sum(drift.drifted for drift in found) <= FALSE_SHARE * TRIALS
    indices = np.array([(drift.mix, drift.distance) for drift in found], np.float64)
    assert indices[:, 1].mean() == pytest.approx((BINS - 1) * (1 / 200 + 1 / 200), rel=0.15)
    assert indices[:, 0].mean() < (len(TASKS) - 1) * (1 / 200 + 1 / 200)  # an unsure prior varies less than a task


def test_a_task_that_appears_is_raised_by_name_with_its_shares() -> None:
    without = (0.5, 0.3, 0.0, 0.1, 0.08, 0.02)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        drift = measure(answers(500, rng, without), answers(500, rng, (0.3, 0.2, 0.3, 0.1, 0.08, 0.02)))
        assert drift.mix is not None
        assert drift.mix > Limits().index
        assert drift.findings[0].startswith(f"task mix {drift.mix:.2f}: `chat` ")
        assert drift.verdict == "; ".join(drift.findings)


def test_prompts_unlike_all_tasks_are_raised() -> None:
    drift = raised(1, farther=0.15)
    assert drift.distance is not None
    assert drift.distance > Limits().index
    assert drift.findings[0].startswith(f"distance to the nearest task {drift.distance:.2f}: median 0.")
    assert drift.mix is not None
    assert drift.mix < Limits().index


def test_the_task_whose_acceptance_fell_is_named_with_its_interval() -> None:
    drift = raised(2, count=500, rates=(0.5, 0.25, 0.2, 0.6, 0.5, 0.1))
    [found] = drift.findings
    assert found.startswith("acceptance of `code` 0.")
    assert drift.acceptance == pytest.approx(0.15, abs=0.05)
    low, high = (float(word) for word in found.rpartition("(")[2].rstrip(")").split(" to "))
    assert Limits().fall < low < drift.acceptance < high


def test_a_rise_of_acceptance_is_no_drift() -> None:
    drift = raised(3, count=500, rates=tuple(min(0.9, rate + 0.2) for rate in RATES))
    assert not drift.drifted
    assert drift.acceptance is not None
    assert drift.acceptance < 0


@pytest.mark.parametrize(("before", "after"), [(199, 1000), (1000, 199), (0, 0)])
def test_nothing_is_claimed_of_too_few_answers(before: int, after: int) -> None:
    rng = np.random.default_rng(4)
    drift = measure(answers(before, rng), answers(after, rng, (0, 0, 1, 0, 0, 0), farther=0.5))
    assert (drift.reference, drift.recent) == (before, after)
    assert (drift.mix, drift.distance, drift.acceptance) == (None, None, None)
    assert not drift.claimed
    assert not drift.drifted
    assert drift.verdict == "too few answers"


def test_a_figure_is_claimed_only_of_answers_that_have_what_it_needs() -> None:
    rng = np.random.default_rng(5)
    bare = [Observation(one.task, {}, None, one.proposed, one.accepted) for one in answers(300, rng)]
    drift = measure(bare, bare)
    assert (drift.mix, drift.distance) == (None, None)
    assert drift.acceptance == 0.0
    undrafted = [Observation(one.task, one.prior, one.distance, 0, 0) for one in answers(300, rng)]
    drift = measure(undrafted, undrafted)
    assert (drift.mix, drift.distance) == (0.0, 0.0)
    assert drift.acceptance is None


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=12))
def test_the_index_is_finite_never_negative_symmetric_and_0_for_equal_sides(counts: list[tuple[int, int]]) -> None:
    before, after = np.array(counts, np.float64).T
    index = stability_index(before, after).sum()
    assert math.isfinite(index)
    assert index >= 0
    assert index == pytest.approx(stability_index(after, before).sum())
    assert stability_index(before, before).sum() == 0


def test_equal_prompts_do_not_break_the_bins() -> None:
    one = Observation("maths", {"maths": 1.0}, 0.25, 0, 0)
    assert measure([one] * 300, [one] * 300).distance == 0.0
    far = Observation("maths", {"maths": 1.0}, 0.75, 0, 0)
    drift = measure([one] * 150 + [far] * 150, [far] * 300)
    assert drift.distance is not None
    assert drift.distance > 1


def test_an_answer_is_of_the_likeliest_task_and_only_drafts_count() -> None:
    params = SamplingParams(seed=0, max_tokens=4)
    trace = Trace(
        prompt_ids=(1,),
        output_ids=(2,),
        params=params,
        task="code",
        prior={"maths": 0.6, "code": 0.3, GENERAL: 0.1},
        sources={"draft": Proposals(10, 4), "own_text": Proposals(3, 3)},
    )
    assert Observation.of(trace, 0.5) == Observation("maths", dict(trace.prior or {}), 0.5, 10, 4)
    bare = Trace(prompt_ids=(1,), output_ids=(2,), params=params, task="code")
    assert Observation.of(bare) == Observation("code", {}, None, 0, 0)


def test_a_distance_is_that_of_the_nearest_centroid() -> None:
    known = TaskCentroids("one", ("a", "b"), (1, 1), np.eye(2, 3, dtype=np.float32))
    prompts = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1]], np.float32)
    assert distances(known, prompts) == pytest.approx([0.0, 1 - math.sqrt(0.5), 1.0], abs=1e-6)
