"""The ledger of an answer is read when it ends: what was judged, what moves brought, and how it ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext
from typing import Any, cast

import pytest

from core.generation import GenerationRequest, Run
from core.rollout.trial import JudgedAnswer
from core.sampling.params import SamplingParams
from core.wire.messages import Address
from serve_app.config import load_config
from serve_app.deployments.answer.answers import Answers, OpenAnswer
from serve_app.deployments.answer.bundles import IngressCounts, ServingBundle
from serve_app.deployments.answer.started import Started
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.answer_history import Routing
from serve_app.http.exchange import Exchange
from serve_app.http.service import ChoiceRun, Overloaded, Speculation
from serve_app.spans import FIRST_TOKEN, PREFILL
from tests.serve_app.deployments.telemetry.recording import recorded_values
from tests.serve_app.span_events import KeptSpan

GOOD, BAD = Run((1, 2, 3), proposed=4, accepted=2), Run((4,), proposed=2, accepted=0)


class Drafts:
    """As `DraftSessions`: the test says whose draft serves each choice."""

    def __init__(self, *tasks: str) -> None:
        self.tasks = list(tasks)
        self.prior: dict[str, float] | None = {"math": 0.8, "general": 0.2}
        self.observed: list[tuple[int, Run]] = []

    def task(self, choice: int) -> str:
        return self.tasks[choice]

    def observe(self, choice: int, run: Run) -> None:
        self.observed.append((choice, run))


def opened(drafts: Drafts) -> OpenAnswer:
    params = SamplingParams(seed=1, max_tokens=9)
    requests = [
        GenerationRequest(tokens=(5, 6), prompt_length=2, params=params, choice=choice)
        for choice in range(len(drafts.tasks))
    ]
    bundle = ServingBundle(ServedModels(load_config("family"), drafts={"general": None}), IngressCounts())
    answer = OpenAnswer(requests, bundle, Speculation(enabled=False))
    answer.drafts = cast(Any, drafts)
    return answer


def test_a_run_is_entered_with_its_task_before_drafts_learn_from_it() -> None:
    drafts = Drafts("math")
    answer = opened(drafts)
    drafts.observe = lambda *_: drafts.tasks.__setitem__(0, "general")  # type: ignore[method-assign]
    assert answer.enter(0, GOOD).task == "math"
    assert answer.generation.ledger.choices[0].task == "math"
    assert answer.generation.remaining(0) == 6
    assert answer.generation.resumed(0).tokens == (5, 6, 1, 2, 3)


def test_an_answer_without_speculation_is_of_no_task_and_has_no_prior() -> None:
    answer = opened(Drafts("math"))
    answer.drafts = None
    assert (answer.enter(0, Run((1,))).task, answer.prior, answer.judged()) == ("general", None, [])


def test_the_choices_that_a_draft_proposed_for_are_judged_as_of_the_task_that_the_router_said() -> None:
    drafts = Drafts("code", "math", "math")
    answer = opened(drafts)
    for choice, run in ((0, GOOD), (0, BAD), (1, BAD), (2, Run((7,), proposed=3, accepted=3, source="own_text"))):
        answer.enter(choice, run)
    assert answer.judged() == [JudgedAnswer("math", 4, 2), JudgedAnswer("math", 1, 0)]
    drafts.prior = None
    assert {one.task for one in answer.judged()} == {"general"}


def test_how_the_task_was_told_is_the_routers_choice_the_clients_or_nobodys() -> None:
    drafts = Drafts("math")
    answer = opened(drafts)
    assert answer.routing == Routing("math", "routed", 0.8)
    drafts.prior = None
    assert answer.routing == Routing("general", "unasked")
    answer.drafts = None
    assert answer.routing == Routing("general", "unasked")


async def test_the_task_that_a_client_names_is_its_own_if_the_bundle_has_it() -> None:
    bundle = ServingBundle(ServedModels(load_config("family"), drafts={"general": None}), IngressCounts())
    for task, routing in (("general", Routing("general", "named")), ("math", Routing())):
        answer = OpenAnswer(opened(Drafts("math")).generation.requests, bundle, Speculation(task=task))
        assert answer.routing == routing
        assert answer.drafts is not None
        answer.drafts.close()


def test_only_choices_that_moved_count_as_before_and_after() -> None:
    drafts = Drafts("math", "math")
    answer = opened(drafts)
    for choice, task, run in ((0, "math", BAD), (1, "math", BAD), (0, "general", GOOD), (0, "math", GOOD)):
        drafts.tasks[choice] = task
        answer.enter(choice, run)
    assert answer.around_moves() == {
        "proposed_before_moves": 2,
        "accepted_before_moves": 0,
        "proposed_after_moves": 8,
        "accepted_after_moves": 4,
    }


def test_the_span_tells_which_verifiers_began_with_the_prompt_and_when_there_was_a_token() -> None:
    answer, span = opened(Drafts("math", "math")), KeptSpan()
    answer.drafts = None
    with Exchange(span).current():
        assert answer.generation.unfinished == [0, 1]  # which opens the pages of the choices
        answer.start(Started((7, 8), Address("tcp://one:1", "key")), [0, 1])
        for choice in (1, 0, 0):
            answer.enter(choice, Run((1,)))
        answer.start(Started((9, 10), Address("tcp://two:1", "key")), [0, 1])
        answer.enter(1, Run((2,)))
    assert span.events == [
        (PREFILL, {"taskspec.verifier": "tcp://one:1"}),
        (FIRST_TOKEN, {}),
        (PREFILL, {"taskspec.verifier": "tcp://two:1"}),
    ]


def test_the_calls_and_the_verifiers_wish_are_counted_for_the_replica() -> None:
    answer = opened(Drafts("math"))
    started = Started((7,), Address("tcp://one:1", "key"), declines_all=True)
    answer.drafts = None
    answer.start(started, [0])
    answer.stop()
    assert (answer.bundle.counts.events, answer.bundle.counts.declining) == ({"verifier_calls": 1}, True)


class Calls:
    """As `VerifierCalls`: a verifier takes the prompt, gives `runs`, and then fails if there is an `error`."""

    num_waiting = 2

    def __init__(self, runs: Sequence[Run], error: Exception | None = None) -> None:
        self._runs = runs
        self._error = error

    def place(self) -> Any:
        return nullcontext()

    async def runs(self, generation: object, place: object, answer: OpenAnswer) -> AsyncGenerator[ChoiceRun, None]:
        del generation, place
        answer.start(Started((7,), Address("tcp://one:1", "key"), declines_all=True), [0])
        for run in self._runs:
            yield answer.enter(0, run)
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize(
    ("runs", "error", "taken", "reason"),
    [
        ([GOOD, Run((9,), finish_reason="stop")], None, 2, "stop"),
        ([GOOD, Run((9,), finish_reason="length")], None, 2, "length"),
        ([GOOD, GOOD], None, 1, "abort"),  # its client has enough
        ([GOOD], Overloaded("several verifiers were lost"), 2, "error"),
    ],
)
async def test_an_answer_counts_by_its_end(
    monkeypatch: pytest.MonkeyPatch, runs: list[Run], error: Exception | None, taken: int, reason: str
) -> None:
    recorded = recorded_values(monkeypatch, "vllm_")
    served = ServedModels(load_config("family"), drafts={"general": None})
    answers = Answers(served, cast(Any, Calls(runs, error)), None)
    request = GenerationRequest(tokens=(5, 6), prompt_length=2, params=SamplingParams(seed=1, max_tokens=9))
    stream = answers.generate([request], Speculation(enabled=False))
    with pytest.raises(type(error)) if error is not None else nullcontext():
        for _ in range(taken):
            await anext(stream)
    await stream.aclose()
    assert [name[1] for name in recorded if name[0] == "request_success"] == [reason]
    assert (("request_queue_time_seconds",) in recorded) == (reason in ("stop", "length"))
