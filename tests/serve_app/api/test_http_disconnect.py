"""A client that hangs up, at any moment, leaves nothing behind in the service."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serve_app.api.app import create_app
from tests.serve_app.clients import Connection
from tests.serve_app.scripted import ScriptedService

BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "org/toy", "prompt": ["the answer", "END"], "n": 2, "max_tokens": 50},
    "/v1/chat/completions": {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}], "n": 2},
}


class Stalled(ScriptedService):
    """Gives `free` passes per prompt, then hangs."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self._left = free
        self.stalled = asyncio.Event()
        self.step = self._take

    async def _take(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.stalled.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
@pytest.mark.parametrize("passes", [0, 1, 2, 5])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_hanging_up_ends_every_session(*, path: str, stream: bool, passes: int, spec_version: str) -> None:
    service = Stalled(passes)
    connection = Connection(create_app(service), path, {**BODIES[path], "stream": stream}, spec_version)
    await asyncio.wait_for(service.stalled.wait(), 60)
    assert service.open > 0
    connection.hang_up()
    await connection.ended()
    assert service.open == 0


async def test_a_server_that_cancels_the_request_ends_every_session() -> None:
    for stream in (False, True):
        service = Stalled(2)
        body = {**BODIES["/v1/completions"], "stream": stream}
        connection = Connection(create_app(service), "/v1/completions", body)
        await asyncio.wait_for(service.stalled.wait(), 60)
        connection.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connection.ended()
        assert service.open == 0


async def test_hanging_up_at_a_random_moment_leaves_no_task_behind() -> None:
    for turns in range(0, 120, 3):
        service = ScriptedService(tokens=[9] * 200)
        body = {**BODIES["/v1/completions"], "stream": turns % 2 == 0}
        connection = Connection(create_app(service), "/v1/completions", body)
        for _ in range(turns):
            await asyncio.sleep(0)
        connection.hang_up()
        await connection.ended()
        assert service.open == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
