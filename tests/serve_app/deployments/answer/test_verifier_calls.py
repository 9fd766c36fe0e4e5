"""Answers while verifiers come and go: none waits in silence, none is lost, and each loss is told once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from core.errors import InvalidRequest
from core.generation import GenerationRequest, Run
from core.sampling.params import SamplingParams
from core.wire.engine_thread import EngineStopped
from core.wire.messages import Address
from serve_app.deployments.answer.admission import Admission
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.answer.started import Started
from serve_app.deployments.answer.verifier_calls import MAX_LOSSES, VerifierCalls
from serve_app.deployments.answer.verifier_watch import VerifierWatch
from serve_app.http.exchange import Exchange
from serve_app.http.service import ChoiceRun, Overloaded
from serve_app.spans import FAILOVER, Headers
from tests.serve_app.span_events import HANDED, KeptSpan

SOON = 0.01  # seconds
LONG = 60.0  # longer than a test may take
LENGTH = 6  # tokens of an answer, which are 0, 1, 2, ...


class Call:
    """A streaming call of a verifier, which the test lets go on by `give`."""

    def __init__(self, requests: Sequence[GenerationRequest]) -> None:
        self.requests = requests
        self.cancelled = False
        self._items: asyncio.Queue[Any] = asyncio.Queue()

    def give(self, *items: Any) -> None:
        for item in items:
            self._items.put_nowait(item)

    def start(self, endpoint: str = "tcp://one:1") -> None:
        self.give(Started(tuple(range(len(self.requests))), Address(endpoint, "key")))

    def run(self, length: int) -> None:
        """The next tokens of every choice."""
        for request in self.requests:
            begin = len(request.tokens) - request.prompt_length + self.given
            end = begin + length
            reason = "length" if end == LENGTH else None
            self.give((request.choice, Run(tuple(range(begin, end)), finish_reason=reason)))
        self.given += length

    given = 0

    def __aiter__(self) -> Call:
        return self

    async def __anext__(self) -> Any:
        item = await self._items.get()
        if isinstance(item, Exception):
            raise item
        return item

    def cancel(self) -> None:
        self.cancelled = True


class Verifier:
    """A handle; the test gets its calls in their order. It is also what Serve lists, while it is `up`."""

    def __init__(self) -> None:
        self.up = True
        self.calls: asyncio.Queue[Call] = asyncio.Queue()
        self.handed: list[Headers | None] = []  # with each call

    def options(self, *, stream: bool) -> Verifier:
        assert stream
        return self

    @property
    def generate(self) -> Verifier:
        return self

    def remote(self, requests: Sequence[GenerationRequest], span_headers: Headers | None) -> Call:
        call = Call(requests)
        self.handed.append(span_headers)
        self.calls.put_nowait(call)
        return call

    async def next_call(self) -> Call:
        async with asyncio.timeout(LONG):
            return await self.calls.get()

    async def get_queue_len(self, *, deadline_s: float) -> int:
        del deadline_s
        return 0


class Alone:
    """An answer without drafts."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation

    def start(self, started: Started, choices: Sequence[int]) -> None: ...

    def enter(self, choice: int, run: Run) -> ChoiceRun:
        choice_run = ChoiceRun(choice, run, "general")
        self._generation.ledger.add(choice_run)
        return choice_run

    def stop(self) -> None: ...


class Ingress:
    """Answers over calls of a faked verifier; `received` has the tokens so far."""

    def __init__(self, *, wait: float = LONG, open_wait: float = LONG, queue: int = 8) -> None:
        self.verifier = Verifier()
        self.watch = VerifierWatch(lambda: [self.verifier] if self.verifier.up else [], period=SOON)
        self.admission = Admission(lambda: 2, queue)
        handle = cast("DeploymentHandle[Any]", self.verifier)
        self.calls = VerifierCalls(handle, self.watch, self.admission, wait, open_wait, retry_after=0.0)
        self.received: list[list[int]] = []

    async def answer(self, choices: int = 1) -> list[list[int]]:
        """The tokens of every choice."""
        params = SamplingParams(seed=1, max_tokens=LENGTH)
        requests = [
            GenerationRequest(tokens=(7, 8), prompt_length=2, params=params, choice=number) for number in range(choices)
        ]
        tokens: list[list[int]] = [[] for _ in requests]
        self.received = tokens
        generation = Generation(requests)
        with self.calls.place() as place:
            async with aclosing(self.calls.runs(generation, place, Alone(generation))) as runs:
                async for run in runs:
                    tokens[run.choice] += run.run.tokens
        return tokens

    async def until(self, number: int) -> None:
        """Wait until so many tokens have come."""
        async with asyncio.timeout(LONG):
            while sum(map(len, self.received)) < number:  # noqa: ASYNC110 - the answers take no notice
                await asyncio.sleep(0)


async def running(**settings: Any) -> Ingress:
    """With a verifier that runs."""
    ingress = Ingress(**settings)
    await ingress.watch.probe()
    return ingress


@pytest.mark.parametrize("loss", [ActorDiedError(), EngineStopped("it failed")])
async def test_an_answer_goes_on_where_its_verifier_was_lost(loss: Exception) -> None:
    if isinstance(loss, EngineStopped):
        loss = RayTaskError("generate", "traceback", loss).as_instanceof_cause()
    ingress = await running()
    answering = asyncio.create_task(ingress.answer(choices=2))
    first = await ingress.verifier.next_call()
    first.start()
    first.run(2)
    first.give(loss)
    second = await ingress.verifier.next_call()
    assert first.cancelled
    assert [request.tokens for request in second.requests] == [(7, 8, 0, 1)] * 2
    second.start("tcp://two:2")
    second.run(LENGTH - 2)
    second.give(StopAsyncIteration())
    assert await answering == [list(range(LENGTH))] * 2


async def test_the_span_of_a_request_tells_when_its_answer_goes_on_at_another_verifier() -> None:
    ingress, span = await running(), KeptSpan()
    with Exchange(span).current():
        answering = asyncio.create_task(ingress.answer())
    first = await ingress.verifier.next_call()
    first.start()
    first.run(2)
    first.give(ActorDiedError())
    second = await ingress.verifier.next_call()
    second.start("tcp://two:2")
    second.run(LENGTH - 2)
    second.give(StopAsyncIteration())
    assert await answering == [list(range(LENGTH))]
    assert span.events == [(FAILOVER, {"error.type": "ActorDiedError", "taskspec.tokens": 2})]
    assert ingress.verifier.handed == [HANDED, HANDED]


async def test_a_new_request_is_refused_when_its_patience_ends() -> None:
    ingress = await running(wait=SOON)
    ingress.verifier.up = False
    await ingress.watch.probe()
    with pytest.raises(Overloaded, match="no verifier is running") as caught:
        await ingress.answer()
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1)
    assert ingress.verifier.calls.empty(), "nothing is asked of Serve's router"


async def test_a_new_request_that_was_queued_when_the_verifier_went_is_refused_as_well() -> None:
    ingress = await running(wait=SOON)
    answering = asyncio.create_task(ingress.answer())
    queued = await ingress.verifier.next_call()
    ingress.verifier.up = False
    with pytest.raises(Overloaded, match="no verifier is running"):
        await answering
    assert queued.cancelled


async def test_one_that_waits_in_the_queue_of_a_busy_verifier_has_all_the_time() -> None:
    ingress = await running(wait=SOON)
    answering = asyncio.create_task(ingress.answer())
    call = await ingress.verifier.next_call()
    await asyncio.sleep(20 * SOON)
    assert not answering.done()
    call.start()
    call.run(LENGTH)
    call.give(StopAsyncIteration())
    assert await answering == [list(range(LENGTH))]


async def test_a_verifier_that_comes_in_time_answers_those_who_wait() -> None:
    ingress = await running()
    ingress.verifier.up = False
    await ingress.watch.probe()
    answering = asyncio.create_task(ingress.answer())
    await asyncio.sleep(0)
    ingress.verifier.up = True
    call = await ingress.verifier.next_call()
    call.start()
    call.run(LENGTH)
    call.give(StopAsyncIteration())
    assert await answering == [list(range(LENGTH))]


async def test_an_answer_that_has_begun_waits_longer_and_then_ends_with_an_error() -> None:
    ingress = await running(wait=SOON, open_wait=10 * SOON)
    answering = asyncio.create_task(ingress.answer())
    call = await ingress.verifier.next_call()
    call.start()
    call.run(2)
    await ingress.until(2)
    ingress.verifier.up = False
    call.give(ActorDiedError())
    with pytest.raises(Overloaded, match="no verifier is running"):
        await answering
    assert ingress.received == [[0, 1]]


async def test_an_answer_that_loses_every_verifier_it_gets_ends() -> None:
    ingress = await running()
    answering = asyncio.create_task(ingress.answer())
    for _ in range(MAX_LOSSES + 1):
        call = await ingress.verifier.next_call()
        call.start()
        call.give(ActorDiedError())
    with pytest.raises(Overloaded, match="several verifiers were lost"):
        await answering


async def test_a_deployment_that_is_gone_for_good_is_no_reason_to_wait() -> None:
    ingress = await running()
    answering = asyncio.create_task(ingress.answer())
    (await ingress.verifier.next_call()).give(DeploymentUnavailableError(DeploymentID("TargetVerifier")))
    with pytest.raises(Overloaded, match="no verifier is running"):
        await answering


async def test_a_refused_request_is_refused_once_and_in_the_words_of_the_verifier() -> None:
    refusal = RayTaskError("generate", "traceback", InvalidRequest("grammar", "it gave up")).as_instanceof_cause()
    ingress = await running()
    answering = asyncio.create_task(ingress.answer())
    (await ingress.verifier.next_call()).give(refusal)
    with pytest.raises(InvalidRequest, match=r"^it gave up$"):
        await answering
    assert ingress.verifier.calls.empty()


async def test_a_loss_and_each_resumption_have_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    ingress = await running()
    with caplog.at_level(logging.INFO):
        answering = [asyncio.create_task(ingress.answer()) for _ in range(2)]
        lost = [await ingress.verifier.next_call() for _ in answering]
        for call in lost:
            call.start()
            call.run(2)
        for call in lost:
            call.give(ActorDiedError())
        for call in [await ingress.verifier.next_call() for _ in answering]:
            call.start("tcp://two:2")
            call.run(LENGTH - 2)
            call.give(StopAsyncIteration())
        await asyncio.gather(*answering)
    told = [record.message for record in caplog.records]
    assert told == [
        "verifier tcp://one:1 is lost (ActorDiedError); its answers go on at another",
        *["an answer goes on at verifier tcp://two:2, with 2 tokens"] * 2,
    ]


async def test_a_full_house_refuses_at_once_and_asks_nothing_of_anybody() -> None:
    ingress = await running(queue=1)
    answering = [asyncio.create_task(ingress.answer()) for _ in range(3)]
    calls = [await ingress.verifier.next_call() for _ in answering]
    with pytest.raises(Overloaded, match="its queue is full"):
        await ingress.answer()
    assert ingress.verifier.calls.empty()
    for call in calls:
        call.start()
        call.run(LENGTH)
        call.give(StopAsyncIteration())
    await asyncio.gather(*answering)
    assert (ingress.admission.running, ingress.admission.waiting) == (0, 0)


async def test_a_client_that_leaves_while_it_waits_gives_its_place_back() -> None:
    ingress = await running()
    answering = asyncio.create_task(ingress.answer())
    call = await ingress.verifier.next_call()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert call.cancelled
    assert ingress.admission.waiting == 0
