"""A stream that has nothing to say says so, in every protocol, and one that cannot go on ends with a clear error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from serve_app.api.app import create_app
from serve_app.http import answers
from serve_app.http.service import Overloaded
from tests.serve_app.clients import Connection, http_client, openai_client
from tests.serve_app.protocols.anthropic.clients import anthropic_client
from tests.serve_app.scripted import ScriptedService

ANSWER = "the answer is forty-two. END of the story"
MESSAGES: list[Any] = [{"role": "user", "content": "the answer"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "org/toy", "prompt": "the answer", "max_tokens": 60},
    "/v1/chat/completions": {"model": "org/toy", "messages": MESSAGES},
    "/v1/responses": {"model": "org/toy", "input": "the answer"},
    "/v1/messages": {"model": "org/toy", "messages": MESSAGES, "max_tokens": 60},
}
WAITING = ": waiting\n\n"
GONE = Overloaded("no verifier is running; try again later", retry_after_s=10)
BOUND = 60.0  # seconds, for what must come


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SILENCE", 0.01)


class Paused(ScriptedService):
    """Waits before its second pass until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self._passes = 0
        self.step = self._wait

    async def _wait(self) -> None:
        self._passes += 1
        if self._passes == 2:
            await self.may.wait()


@pytest.mark.parametrize("path", BODIES)
async def test_comments_fill_a_silence_and_change_nothing_else(path: str) -> None:
    service = Paused()
    connection = Connection(create_app(service), path, {**BODIES[path], "stream": True})
    async with asyncio.timeout(BOUND):
        await connection.until(WAITING * 3)
        before = connection.text
        service.may.set()
        await connection.task
    assert not before.startswith(WAITING), "the first event has come"
    blocks = connection.text.split("\n\n")
    spoken = [block for block in blocks if not block.startswith(":")]
    kinds = [json.loads(block.partition("data: ")[2]) for block in spoken if "data: {" in block]
    async with http_client(ScriptedService()) as client:
        undisturbed = (await client.post(path, json={**BODIES[path], "stream": True})).text
    assert len(spoken) == len(undisturbed.split("\n\n"))
    assert not any("error" in kind for kind in kinds)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("path", BODIES)
async def test_a_stream_that_has_not_begun_is_refused_with_a_status_of_its_own(path: str) -> None:
    service = ScriptedService()
    service.failure = GONE
    service.step = lambda: asyncio.sleep(0.03)  # longer than a silence may be
    async with http_client(service) as client:
        response = await client.post(path, json={**BODIES[path], "stream": True})
    assert (response.status_code, response.headers["retry-after"]) == (503, "10")
    assert WAITING not in response.text
    assert response.json()["error"]["message"] == "no verifier is running; try again later"


ERRORS = {
    "/v1/completions": ("overloaded", "server_error"),
    "/v1/chat/completions": ("overloaded", "server_error"),
    "/v1/responses": ("overloaded", "server_error"),
    "/v1/messages": (None, "overloaded_error"),
}


@pytest.mark.parametrize("path", BODIES)
async def test_one_that_has_begun_ends_with_an_error_in_the_form_of_its_protocol(path: str) -> None:
    service = ScriptedService()
    service.failure, service.fails_after = GONE, 2
    async with http_client(service) as client:
        response = await client.post(path, json={**BODIES[path], "stream": True})
    assert response.status_code == 200
    last = [block for block in response.text.split("\n\n") if block][-1]
    error = json.loads(last.partition("data: ")[2])["error"]
    assert (error.get("code"), error["type"]) == ERRORS[path]
    assert error["message"] == "no verifier is running; try again later"


async def test_official_clients_read_on_over_comments() -> None:
    service = ScriptedService()
    service.step = lambda: asyncio.sleep(0.03)
    async with openai_client(service) as client:
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(model="org/toy", messages=MESSAGES, stream=True)
        ]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
        async with client.responses.stream(model="org/toy", input="the answer") as stream:
            assert (await stream.get_final_response()).output_text == ANSWER
    async with (
        anthropic_client(service) as client_of_messages,
        client_of_messages.messages.stream(model="org/toy", messages=MESSAGES, max_tokens=60) as messages,
    ):
        assert await messages.get_final_text() == ANSWER
