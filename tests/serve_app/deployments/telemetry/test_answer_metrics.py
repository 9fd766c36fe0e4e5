"""The metrics of answers: tokens by task, version and source, and one value of each time when an answer ends."""

from __future__ import annotations

from collections import Counter

import pytest

from core.generation import Run
from serve_app.config import load_config
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.answer_metrics import (
    ANSWER_BOUNDS,
    FIRST_TOKEN_BOUNDS,
    PER_TOKEN_BOUNDS,
    AnswerMetrics,
    Move,
)
from serve_app.http.ledger import AnswerLedger
from serve_app.http.service import ChoiceRun
from tests.serve_app.deployments.telemetry.recording import Clock, Recorded, recorded_values


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return recorded_values(monkeypatch, "taskspec_answer_")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def answers(recorded: Recorded) -> AnswerMetrics:  # noqa: ARG001 - nothing goes to Ray
    return AnswerMetrics()


def models(version: str | None = "v7", **drafts: str | None) -> ServedModels:
    return ServedModels(load_config("family"), drafts={"general": None, "math": "/parts/aa"} | drafts, version=version)


class Answer:
    """One that is served and counted."""

    def __init__(self, metrics: AnswerMetrics, clock: Clock | None = None, served: ServedModels | None = None) -> None:
        self._metrics, self._clock = metrics, clock or Clock()
        self._served = served or models()
        self.ledger = AnswerLedger(self._clock)
        metrics.begin(self.ledger, self._served)

    def take(self, run: Run, task: str = "math", choice: int = 0, seconds: float = 0.0) -> None:
        self._clock.now += seconds
        if self.ledger.add(ChoiceRun(choice, run, task)).finished:
            self._metrics.observe(self.ledger, choice, self._served.version)

    def end(self) -> None:
        self._metrics.end(self.ledger)


def export(answers: AnswerMetrics) -> None:
    answers.export(Counter())


def test_tokens_are_counted_by_task_version_and_source(answers: AnswerMetrics, recorded: Recorded) -> None:
    first, later, bare = Answer(answers), Answer(answers, served=models("v8")), Answer(answers, served=models(None))
    first.take(Run((1,)), "general")
    first.take(Run((2, 3, 4), proposed=4, accepted=2))
    first.take(Run((5, 6), proposed=1, accepted=1))
    first.take(Run((7,), proposed=3, accepted=0, source="own_text"))
    later.take(Run((8, 9), proposed=2, accepted=1))
    bare.take(Run((10,)), "general")
    assert recorded == {}
    export(answers)
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


def test_an_export_adds_what_is_new_since_the_last_whether_answers_run_or_have_ended(
    answers: AnswerMetrics, recorded: Recorded
) -> None:
    run = Run((1, 2), proposed=3, accepted=1)
    first, second = Answer(answers), Answer(answers)
    first.take(run)
    export(answers)
    first.end()
    export(answers)
    second.take(run)
    second.take(run)
    export(answers)
    second.end()
    export(answers)
    draft = ("math", "v7", "draft")
    assert recorded == {("tokens", *draft): [2, 4], ("proposed", *draft): [3, 6], ("accepted", *draft): [1, 2]}


def test_operators_see_what_drafts_proposed_by_the_application_of_their_pool(answers: AnswerMetrics) -> None:
    first, later, another = (
        Answer(answers),
        Answer(answers, served=models("v8")),  # the same draft in the next bundle
        Answer(answers, served=models("v9", math="/parts/bb")),
    )
    for answer in (first, later, another):
        answer.take(Run((2, 3, 4), proposed=4, accepted=2))
        answer.take(Run((7,), proposed=3, accepted=0, source="own_text"))
    first.end()
    assert {pool: (counts.proposed, counts.accepted) for pool, counts in answers.by_pool().items()} == {
        "draft-math@aa": (8, 4),
        "draft-math@bb": (4, 2),
    }


def test_moves_are_exported_once_with_the_pools_of_both_tasks(answers: AnswerMetrics, recorded: Recorded) -> None:
    moves = Counter({Move("math", "general"): 2})
    answers.export(moves)
    moves[Move("math", "general")] += 1
    answers.export(moves)
    assert recorded == {("taskspec_ingress_moves", "draft-math", "draft-general"): [2, 1]}


def test_an_answer_gives_one_value_of_each_time_when_it_ends(
    answers: AnswerMetrics, recorded: Recorded, clock: Clock
) -> None:
    answer = Answer(answers, clock)
    answer.take(Run((1,)), "general", seconds=0.5)
    answer.take(Run((2, 3, 4), proposed=4, accepted=2), seconds=1.0)
    assert recorded == {}
    answer.take(Run((5,), finish_reason="length"), seconds=1.0)
    assert recorded == {
        ("time_to_first_token_seconds", "math", "v7"): [0.5],
        ("seconds", "math", "v7"): [2.5],
        ("time_per_token_seconds", "math", "v7"): [0.5],  # two seconds for the four tokens after the first
    }


def test_choices_are_answers_of_their_own_and_one_that_never_ends_is_none(
    answers: AnswerMetrics, recorded: Recorded, clock: Clock
) -> None:
    answer = Answer(answers, clock)
    answer.take(Run((1,)), seconds=1.0)
    answer.take(Run((2,), finish_reason="stop"), choice=1, seconds=1.0)  # of one token: no time between tokens
    answer.take(Run((3,)), choice=2, seconds=1.0)
    answer.take(Run((4, 5), finish_reason="stop"), seconds=1.0)
    answer.end()
    assert recorded == {
        ("time_to_first_token_seconds", "math", "v7"): [2.0, 1.0],
        ("seconds", "math", "v7"): [2.0, 4.0],
        ("time_per_token_seconds", "math", "v7"): [1.5],
    }


def test_ray_takes_a_task_in_any_script_and_each_has_its_own_tag(
    answers: AnswerMetrics, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    chinese = models(数学=None, 数字=None)
    for task in ("数学", "数字"):
        Answer(answers, served=chinese).take(Run((1,), finish_reason="stop"), task)
    export(answers)
    tags = {task for name, task, *_ in recorded if name == "tokens"}
    assert len(tags) == 2
    monkeypatch.undo()  # Ray's own encodes the tags, and raises where it cannot
    real = AnswerMetrics()
    Answer(real, served=chinese).take(Run((1,), finish_reason="stop"), "数学")
    real.export(Counter({Move("数学", "数字"): 1}))


def test_bounds_rise_and_span_what_is_measured() -> None:
    for bounds in (FIRST_TOKEN_BOUNDS, PER_TOKEN_BOUNDS, ANSWER_BOUNDS):
        assert bounds == sorted(set(bounds))
    assert FIRST_TOKEN_BOUNDS[0] < 0.03 < 0.6 < FIRST_TOKEN_BOUNDS[-1]  # the family's; SmolLM2's of 400 tokens
    assert PER_TOKEN_BOUNDS[0] < 0.0026 < 0.023 < PER_TOKEN_BOUNDS[-1]  # a tuned draft on Zen 5; plain on Zen 3
