"""The client goes on with an answer that was cut, where the server can; and says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serve_app import client as client_module
from serve_app.api.app import create_app
from serve_app.client import Answer, BadAnswer, Client, CutAnswer, Unreachable
from serve_app.http.service import Overloaded
from tests.serve_app.cutting import Cutting
from tests.serve_app.foreign import Foreign
from tests.serve_app.live import live
from tests.serve_app.scripted import ScriptedService, tokens_of

BODY = {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}]}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAUSES", (0.0, 0.0))


async def ask(url: str, **fields: Any) -> Answer:
    async with Client(f"{url}/v1") as client:
        return await client.ask({**BODY, **fields})


@pytest.mark.parametrize("limits", [(3,), (4, 2, 0, 3), (6,), (7,)])
async def test_an_answer_is_continued_until_it_is_whole(limits: tuple[int, ...]) -> None:
    service = ScriptedService()
    cutting = Cutting(create_app(service), *limits)
    with live(cutting) as url:
        answer = await ask(url, seed=3)
        assert (answer.cuts, cutting.requests) == (len(limits), len(limits) + 1)
        uncut = await ask(url, seed=3)
    assert answer.same_as(uncut)
    assert answer.usage["completion_tokens"] == uncut.usage["completion_tokens"] == len(answer.tokens)


async def test_a_seed_that_the_service_drew_is_kept() -> None:
    service = ScriptedService()
    with live(Cutting(create_app(service), 3)) as url:
        answer = await ask(url)
    assert [request.params.seed for request in service.asked] == [answer.seed] * 2


async def test_a_service_that_fails_for_a_while_is_asked_again() -> None:
    service = ScriptedService()
    service.failure, service.fails_after = Overloaded("no verifier"), 2

    async def recover() -> None:
        if len(service.asked) > 3:
            service.failure = None

    service.step = recover
    with live(create_app(service)) as url:
        answer = await ask(url)
    assert answer.cuts == 3
    assert answer.finish_reason == "stop"


async def test_an_answer_that_fell_silent_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LONGEST_SILENCE", 0.2)
    service = ScriptedService()
    passes = 0

    async def fall_silent() -> None:
        nonlocal passes
        passes += 1
        if passes == 3:
            await asyncio.Event().wait()

    service.step = fall_silent
    with live(create_app(service)) as url:
        answer = await ask(url)
        assert answer.cuts == 1
        assert answer.same_as(await ask(url, seed=answer.seed))


async def test_ends_of_lines_in_a_text_end_no_event() -> None:
    text = "one\u2028two\x85three\rfour"
    with live(create_app(ScriptedService(tokens_of(text)))) as url:
        assert (await ask(url)).text == text


async def test_a_failure_that_would_come_again_is_not_asked_again() -> None:
    service = ScriptedService()
    service.failure, service.fails_after = Overloaded("verifiers were lost", code="verifiers_lost"), 2
    with live(create_app(service)) as url, pytest.raises(BadAnswer, match="verifiers were lost"):
        await ask(url)
    assert len(service.asked) == 1


async def test_it_gives_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "CONTINUED_FOR", 0.2)
    monkeypatch.setattr(client_module, "PAUSES", (0.05, 0.05))
    with live(Cutting(create_app(ScriptedService()), 3, *[0] * 1000)) as url, pytest.raises(BadAnswer):
        await ask(url)


@pytest.mark.parametrize("limit", [0, 1])
async def test_what_has_not_begun_is_not_asked_again(limit: int) -> None:
    cutting = Cutting(create_app(ScriptedService()), limit)
    with live(cutting) as url, pytest.raises((Unreachable, BadAnswer)):
        await ask(url)
    assert cutting.requests == 1


async def test_a_server_that_cannot_continue_is_not_asked_to() -> None:
    foreign = Foreign()
    cutting = Cutting(foreign.app, 5)
    with live(cutting) as url, pytest.raises(BadAnswer):
        await ask(url, model="them/13b")
    assert len(foreign.bodies) == 1


async def test_an_answer_that_differs_is_an_error() -> None:
    service = ScriptedService()
    cutting = Cutting(create_app(service), 5)

    async def change() -> None:
        if cutting.requests == 2:
            service.tokens = service.tokens[::-1]

    service.step = change
    with live(cutting) as url, pytest.raises(BadAnswer, match="not the beginning of this answer") as refused:
        await ask(url)
    assert refused.value.status == 409
    assert not isinstance(refused.value, CutAnswer)
