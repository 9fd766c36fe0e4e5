"""Streams at a fixed cadence: chunks leave at ticks whatever the draft guessed, and joined they are the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from fastapi import FastAPI

from serve_app.http import create_app
from serve_app.openai.cadence import Cadence
from tests.serve_app.clients import Connection, events
from tests.serve_app.scripted import ScriptedService

PATHS = {
    "/v1/completions": {"model": "org/toy", "prompt": ["the answer", "END"], "max_tokens": 12, "n": 2},
    "/v1/chat/completions": {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}], "n": 2},
}
ONE = {"model": "org/toy", "prompt": "the answer", "max_tokens": 8, "stream": True}  # runs of 1, 1, 3, 2 and 1
AT_ONCE = Cadence()


class Time:
    """A clock that a test moves on; whoever sleeps by it wakes in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        waking = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, waking))
        await waking

    async def run(self, work: asyncio.Task[Any]) -> None:
        """Until `work` is done."""
        while not work.done():
            for _ in range(100):
                await asyncio.sleep(0)
            self._sleepers = [(due, waking) for due, waking in self._sleepers if not waking.done()]
            if self._sleepers:
                self.now, waking = min(self._sleepers, key=lambda sleeper: sleeper[0])
                waking.set_result(None)


class Watched(Connection):
    """Notes when each message with a body was sent."""

    def __init__(self, app: FastAPI, path: str, body: dict[str, Any], time: Time) -> None:
        self._time = time
        self.times: list[float] = []
        super().__init__(app, path, body)

    async def _send(self, message: Any) -> None:
        if message.get("body"):
            self.times.append(self._time.now)
        await super()._send(message)


async def watch(
    seconds: Sequence[float], interval_s: float, body: dict[str, Any] = ONE
) -> tuple[list[float], list[Any]]:
    """When events leave and what they are, of a stream whose passes take `seconds`; from the first event on."""
    time, passes = Time(), iter(seconds)
    service = ScriptedService()
    service.step = lambda: time.sleep(next(passes))
    connection = Watched(
        create_app(service, Cadence(interval_s, time.clock, time.sleep)), "/v1/completions", body, time
    )
    await time.run(connection.task)
    assert service.open == 0
    return [round(moment - connection.times[0], 6) for moment in connection.times], events(connection.text)


def sizes(chunks: Sequence[Any]) -> list[int]:
    return [len(chunk["choices"][0]["token_ids"]) for chunk in chunks]


async def test_at_once_every_run_is_an_event_when_it_comes() -> None:
    times, [*chunks, _] = await watch([0.3, 0.1, 0.4, 0.1, 0.1], 0.0)
    assert times == pytest.approx([0.0, 0.1, 0.5, 0.6, 0.7, 0.7])
    assert sizes(chunks) == [1, 1, 3, 2, 1]


async def test_chunks_leave_at_ticks_with_all_that_has_gathered() -> None:
    times, [*chunks, done] = await watch([0.3, 0.1, 0.45, 0.05, 0.05], 0.25)
    assert times == pytest.approx([0.0, 0.25, 0.5, 0.75, 0.75])
    assert (sizes(chunks), done) == ([1, 1, 0, 6], "[DONE]")


async def test_the_times_are_the_same_whatever_was_accepted() -> None:
    slow = await watch([0.3, 0.19, 0.19, 0.19, 0.19], 0.2)
    fast = await watch([0.3, 0.01, 0.7, 0.01, 0.04], 0.2)
    assert slow[0] == fast[0] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 0.8])
    assert sizes(slow[1][:-1]) != sizes(fast[1][:-1])


async def test_a_tick_without_a_token_sends_an_empty_chunk_like_any_other() -> None:
    _, [_, empty, *_] = await watch([0.3, 1.0, 1.0, 1.0, 1.0], 0.5)
    _, [_, full, *_] = await watch([0.3, 0.4, 1.0, 1.0, 1.0], 0.5)
    [nothing], [something] = empty["choices"], full["choices"]
    assert (nothing["text"], nothing["token_ids"], nothing["finish_reason"]) == ("", [], None)
    assert something["token_ids"] != []
    assert nothing.keys() == something.keys()


async def test_a_reader_who_was_slow_gets_no_burst_of_ticks() -> None:
    time = Time()
    ticks = Cadence(1.0, time.clock, time.sleep).ticks()

    async def read() -> list[float]:
        seen = []
        for pause in (0.0, 3.5, 0.25, 1.0, 0.0):
            await anext(ticks)
            seen.append(time.now)
            time.now += pause
        return seen

    reading = asyncio.create_task(read())
    await time.run(reading)
    assert reading.result() == pytest.approx([1.0, 2.0, 6.0, 7.0, 9.0])


async def test_counts_are_summed_and_usage_is_the_same() -> None:
    asked = {**ONE, "stream_options": {"include_usage": True}}
    _, [*at_once, usage, _] = await watch([0.1] * 5, 0.0, asked)
    times, [*paced, same, _] = await watch([0.1] * 5, 0.25, asked)
    assert same["usage"] == usage["usage"]
    assert times[-3:] == pytest.approx([0.5] * 3)  # the last chunk, usage and end leave together
    for count in ("proposed", "accepted"):
        told, expected = (sum(chunk["choices"][0]["speculation"][count] for chunk in of) for of in (paced, at_once))
        assert told == expected > 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("interval_s", [0.05, 0.2, 0.7, 5.0])
async def test_the_answer_is_that_of_a_stream_without_cadence(path: str, interval_s: float) -> None:
    asked = {**PATHS[path], "stream": True, "logprobs": True if "chat" in path else 2}

    async def answers(interval_s: float) -> dict[int, Any]:
        time, service = Time(), ScriptedService()
        service.step = lambda: time.sleep(0.1)
        connection = Watched(create_app(service, Cadence(interval_s, time.clock, time.sleep)), path, asked, time)
        await time.run(connection.task)
        assert service.open == 0
        return joined(events(connection.text))

    assert await answers(interval_s) == await answers(0.0)


def joined(stream: Sequence[Any]) -> dict[int, Any]:
    """Per choice everything it said, in order, without where it was cut."""
    *chunks, done = stream
    assert done == "[DONE]"
    whole: dict[int, Any] = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        mine = whole.setdefault(choice["index"], {"text": "", "tokens": [], "logprobs": [], "ends": []})
        mine["text"] += choice["text"] if "text" in choice else choice["delta"]["content"]
        mine["tokens"] += choice["token_ids"]
        for name, entries in (choice["logprobs"] or {}).items():
            mine["logprobs"] += [(name, entry) for entry in entries or ()]
        mine["ends"] += [choice["finish_reason"]] if choice["finish_reason"] else []
    for mine in whole.values():
        mine["logprobs"].sort(key=lambda entry: entry[0])  # several lists, each in its order
        assert len(mine["ends"]) == 1
    return whole


async def test_a_failure_is_told_at_the_next_tick_behind_what_came_before() -> None:
    time, service = Time(), ScriptedService()
    service.step = lambda: time.sleep(0.1)
    service.failure, service.fails_after = RuntimeError("secret"), 3
    connection = Watched(create_app(service, Cadence(0.5, time.clock, time.sleep)), "/v1/completions", ONE, time)
    await time.run(connection.task)
    *chunks, error = events(connection.text)
    assert (sizes(chunks), error["error"]["type"]) == ([1, 4], "server_error")
    assert connection.times == pytest.approx([0.1, 0.6, 0.6])


@pytest.mark.parametrize("turns", range(0, 60, 4))
@pytest.mark.parametrize("path", PATHS)
async def test_hanging_up_at_any_moment_ends_every_session(path: str, turns: int) -> None:
    service = ScriptedService(tokens=[9] * 200)
    connection = Connection(create_app(service, Cadence(1e-6)), path, {**PATHS[path], "stream": True})
    for _ in range(turns):
        await asyncio.sleep(0)
    connection.hang_up()
    await connection.task
    assert service.open == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_hanging_up_between_ticks_ends_every_session_at_once() -> None:
    time, service = Time(), ScriptedService()
    service.step = asyncio.Semaphore(2).acquire  # two passes, then none
    connection = Connection(create_app(service, Cadence(9.0, time.clock, time.sleep)), "/v1/completions", ONE)
    await connection.until("data: ")
    assert service.open == 1
    connection.hang_up()
    await connection.task
    assert (service.open, time.now, connection.text.count("data: ")) == (0, 0.0, 1)
