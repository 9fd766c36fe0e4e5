"""Serve calls end without a trace, whatever state they are in."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayError, RayTaskError
from ray.serve._private.common import RequestMetadata
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentResponseGenerator

from core.errors import InvalidRequest
from core.wire.engine_thread import EngineStopped
from serve_app.deployments.answer.serve_calls import cancel_call, replica_lost, without_traceback


def stream_of(assigned: Future[Any]) -> DeploymentResponseGenerator[Any]:
    return DeploymentResponseGenerator(assigned, RequestMetadata("request", "internal"))


async def test_hanging_up_on_a_refused_call_is_no_second_refusal() -> None:
    refused: Future[Any] = Future()
    refused.set_exception(BackPressureError(1, 1))
    stream = stream_of(refused)
    with pytest.raises(BackPressureError):
        await anext(stream)
    cancel_call(stream)


async def test_hanging_up_on_a_queued_call_takes_it_out_of_the_queue() -> None:
    queued: Future[Any] = Future()
    stream = stream_of(queued)
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    cancel_call(stream)
    assert queued.cancelled()
    with pytest.raises(RayError):
        await reading


@pytest.mark.parametrize(
    ("cause", "lost"), [(EngineStopped("the engine has stopped"), True), (InvalidRequest("n", "too many"), False)]
)
def test_a_stopped_engine_is_a_lost_replica_and_a_refused_request_is_not(*, cause: Exception, lost: bool) -> None:
    error = RayTaskError("generate", "traceback", cause).as_instanceof_cause()
    assert isinstance(error, type(cause))
    assert replica_lost(error) == lost
    assert replica_lost(ActorDiedError())


def test_a_client_is_told_why_its_request_failed_and_nothing_of_the_replica() -> None:
    refused = RayTaskError("generate", "traceback", InvalidRequest("grammar", "it gave up")).as_instanceof_cause()
    assert str(without_traceback(refused)) == "it gave up"
    failed = RayTaskError("generate", "traceback", ValueError("ours to mend")).as_instanceof_cause()
    assert without_traceback(failed) is failed
