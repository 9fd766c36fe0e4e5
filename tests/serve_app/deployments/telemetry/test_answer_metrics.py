"""The metrics of answers: tokens by task, version and source, and one value of each time when an answer ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest
from ray.util.metrics import Metric

from core.generation import Run
from serve_app.deployments.telemetry.answer_metrics import (
    ANSWER_BOUNDS,
    FIRST_TOKEN_BOUNDS,
    PER_TOKEN_BOUNDS,
    AnswerMetrics,
    AnswerTimes,
)
from serve_app.http.service import ChoiceRun

Recorded = dict[tuple[str, ...], list[float]]  # by the name of a metric and the values of its tags, in their order


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """What Ray's metrics are given."""
    found: Recorded = defaultdict(list)

    def record(metric: Metric, value: float, tags: Mapping[str, str]) -> None:
        assert set(tags) == set(metric.info["tag_keys"])
        found[metric.info["name"].removeprefix("taskspec_answer_"), *tags.values()].append(value)

    monkeypatch.setattr(Metric, "_record", record)
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def answers(recorded: Recorded, clock: Clock) -> Iterator[AnswerMetrics]:  # noqa: ARG001 - nothing goes to Ray
    return AnswerMetrics(clock)


def took(times: AnswerTimes, clock: Clock, seconds: float, run: Run, task: str = "math", choice: int = 0) -> None:
    clock.now += seconds
    times.take(ChoiceRun(choice, run, task), "v7")


def test_tokens_are_counted_by_task_version_and_source(answers: AnswerMetrics, recorded: Recorded) -> None:
    times = answers.begin()
    for run, task, version in (
        (Run((1,)), "general", "v7"),
        (Run((2, 3, 4), proposed=4, accepted=2), "math", "v7"),
        (Run((5, 6), proposed=1, accepted=1), "math", "v7"),
        (Run((7,), proposed=3, accepted=0, source="own_text"), "math", "v7"),
        (Run((8, 9), proposed=2, accepted=1), "math", "v8"),  # another bundle took over
        (Run((10,)), "general", None),
    ):
        times.take(ChoiceRun(0, run, task), version)
    assert recorded == {}
    answers.export()
    assert recorded == {
        ("tokens", "general", "v7", "none"): [1],
        ("tokens", "math", "v7", "draft"): [5],
        ("proposed", "math", "v7", "draft"): [5],
        ("accepted", "math", "v7", "draft"): [3],
        ("tokens", "math", "v7", "own_text"): [1],
        ("proposed", "math", "v7", "own_text"): [3],
        ("tokens", "math", "v8", "draft"): [2],
        ("proposed", "math", "v8", "draft"): [2],
        ("accepted", "math", "v8", "draft"): [1],
        ("tokens", "general", "none", "none"): [1],
    }


def test_an_export_adds_what_is_new_since_the_last(answers: AnswerMetrics, recorded: Recorded) -> None:
    times = answers.begin()
    run = ChoiceRun(0, Run((1, 2), proposed=3, accepted=1), "math")
    times.take(run, "v7")
    answers.export()
    answers.export()
    times.take(run, "v7")
    times.take(run, "v7")
    answers.export()
    draft = ("math", "v7", "draft")
    assert recorded == {("tokens", *draft): [2, 4], ("proposed", *draft): [3, 6], ("accepted", *draft): [1, 2]}


def test_an_answer_gives_one_value_of_each_time_when_it_ends(
    answers: AnswerMetrics, recorded: Recorded, clock: Clock
) -> None:
    times = answers.begin()
    took(times, clock, 0.5, Run((1,)), task="general")
    took(times, clock, 1.0, Run((2, 3, 4), proposed=4, accepted=2))
    assert recorded == {}
    took(times, clock, 1.0, Run((5,), finish_reason="length"))
    assert recorded == {
        ("time_to_first_token_seconds", "math", "v7"): [0.5],
        ("seconds", "math", "v7"): [2.5],
        ("time_per_token_seconds", "math", "v7"): [0.5],  # two seconds for the four tokens after the first
    }


def test_choices_are_answers_of_their_own_and_one_that_never_ends_is_none(
    answers: AnswerMetrics, recorded: Recorded, clock: Clock
) -> None:
    times = answers.begin()
    took(times, clock, 1.0, Run((1,)), choice=0)
    took(times, clock, 1.0, Run((2,), finish_reason="stop"), choice=1)  # of one token: no time between tokens
    took(times, clock, 1.0, Run((3,)), choice=2)
    took(times, clock, 1.0, Run((4, 5), finish_reason="stop"), choice=0)
    assert recorded == {
        ("time_to_first_token_seconds", "math", "v7"): [2.0, 1.0],
        ("seconds", "math", "v7"): [2.0, 4.0],
        ("time_per_token_seconds", "math", "v7"): [1.5],
    }


def test_ray_takes_a_task_in_any_script_and_each_has_its_own_tag(
    answers: AnswerMetrics, recorded: Recorded, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in ("数学", "数字"):
        took(answers.begin(), clock, 1.0, Run((1,), finish_reason="stop"), task=task)
    answers.export()
    tags = {task for name, task, *_ in recorded if name == "tokens"}
    assert len(tags) == 2
    monkeypatch.undo()  # Ray's own encodes the tags, and raises where it cannot
    real = AnswerMetrics(clock)
    took(real.begin(), clock, 1.0, Run((1,), finish_reason="stop"), task="数学")
    real.export()


def test_bounds_rise_and_span_what_is_measured() -> None:
    for bounds in (FIRST_TOKEN_BOUNDS, PER_TOKEN_BOUNDS, ANSWER_BOUNDS):
        assert bounds == sorted(set(bounds))
    assert FIRST_TOKEN_BOUNDS[0] < 0.03 < 0.6 < FIRST_TOKEN_BOUNDS[-1]  # the family's; SmolLM2's of 400 tokens
    assert PER_TOKEN_BOUNDS[0] < 0.0026 < 0.023 < PER_TOKEN_BOUNDS[-1]  # a tuned draft on Zen 5; plain on Zen 3
