"""How a load is sent: how much at once, in which order, with which seeds, and when chunks are said to have come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from core.text.prompts import Message, Prompt
from serve_app.api.app import create_app
from serve_app.client import BadAnswer, Client, Unreachable
from serve_app.load.sending import (
    Arrivals,
    Level,
    Load,
    Mode,
    NumberedPrompt,
    Streams,
    arrivals,
    round_size,
    rounds,
)
from tests.serve_app.foreign import Foreign
from tests.serve_app.live import live
from tests.serve_app.scripted import ScriptedService

FIELDS = {"model": "org/toy", "temperature": 0.5, "max_tokens": 20}
QUESTIONS = [NumberedPrompt(number, Prompt(prompt=f"prompt {number}")) for number in range(12)]


def send(
    url: str, level: Level, modes: Sequence[Mode], questions: Sequence[NumberedPrompt] = QUESTIONS, clock: Any = None
) -> tuple[Load, list[int]]:
    """The load after it has gone, and a count of what was heard of it on the way."""
    heard: list[int] = []

    async def go() -> Load:
        clocks = {} if clock is None else {"clock": clock}
        async with Client(f"{url}/v1", **clocks) as client:
            load = Load(client, FIELDS, 7, lambda: heard.append(len(heard)), **clocks)
            await load.measure(level, questions, modes)
        return load

    return asyncio.run(go()), heard


class Crowded(ScriptedService):
    """Answers nobody before so many are asking, once."""

    def __init__(self, crowd: int) -> None:
        super().__init__()
        self._crowd = crowd
        self.step = self._wait

    async def _wait(self) -> None:
        async with asyncio.timeout(30):
            while self.most_open < self._crowd:  # noqa: ASYNC110 - the others come in their own time
                await asyncio.sleep(0.001)


def test_a_closed_loop_keeps_its_streams_busy_and_asks_everything_once() -> None:
    service = Crowded(3)
    with live(create_app(service)) as url:
        load, heard = send(url, Streams(3), ("on",))
    assert (service.most_open, service.open) == (3, 0)
    [only] = load.measured[0].rounds
    assert sorted(sample.question.number for sample in only.samples) == list(range(12))
    assert len(heard) == 12
    assert only.until is not None
    assert all(sample.answer is not None and sample.answer.finish_reason == "stop" for sample in only.samples)
    assert {request.params.temperature for request in service.asked} == {0.5}
    assert {request.params.max_tokens for request in service.asked} == {20}


def test_both_modes_ask_the_same_with_the_same_seeds_in_turns() -> None:
    service = ScriptedService()
    with live(create_app(service)) as url:
        load, heard = send(url, Streams(1), ("on", "off"), QUESTIONS[:3])
    assert [each.mode for each in load.measured[0].rounds] == ["on", "off", "off", "on", "on", "off"]
    assert [request.params.seed for request in service.asked] == [7, 7, 8, 8, 9, 9]
    assert [request.num_speculative_tokens for request in service.asked] == [None, 0, 0, None, None, 0]
    assert len(heard) == 6


def test_rounds_are_small_enough_to_alternate_and_large_enough_to_load_every_stream() -> None:
    both: tuple[Mode, ...] = ("on", "off")
    assert round_size(Streams(4), 32, ("off",)) == 32
    assert (round_size(Streams(1), 32, both), round_size(Streams(4), 32, both)) == (1, 8)
    assert round_size(Arrivals(2.0), 5, both) == 3
    asked = [(mode, [question.number for question in some]) for mode, some in rounds(QUESTIONS[:5], 2, both)]
    assert asked == [("on", [0, 1]), ("off", [0, 1]), ("off", [2, 3]), ("on", [2, 3]), ("on", [4]), ("off", [4])]


def test_arrivals_are_poisson_and_the_same_for_the_same_seed() -> None:
    dues = arrivals(100.0, 4.0, 20_000, seed=3)
    assert dues == arrivals(100.0, 4.0, 20_000, seed=3) != arrivals(100.0, 4.0, 20_000, seed=4)
    gaps = [after - before for before, after in zip([100.0, *dues], dues, strict=False)]
    assert sum(gaps) / len(gaps) == pytest.approx(1 / 4, rel=0.03)
    assert sum(gap > 0.5 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-2), rel=0.05)


def test_arrivals_wait_for_nobody_and_are_timed_from_when_they_were_due() -> None:
    service = Crowded(12)  # none is answered before all have been sent
    with live(create_app(service)) as url:
        load, _ = send(url, Arrivals(500.0), ("on",))
    [only] = load.measured[0].rounds
    due = {sample.question.number: sample.due_at for sample in only.samples}
    assert [due[number] for number in range(12)] == arrivals(only.began, 500.0, 12, seed=7)


class Clock:
    """Stands still but for `service`, whose passes move it on once all that was sent before has been seen."""

    def __init__(self, service: ScriptedService, seconds: Sequence[float]) -> None:
        self.now = 0.0
        self._seconds = list(seconds)
        self._seen, self._expected = 0, 2  # a round and its one question look first
        service.step = self._step

    def __call__(self) -> float:
        self._seen += 1
        return self.now

    async def _step(self) -> None:
        async with asyncio.timeout(30):
            while self._seen < self._expected:  # noqa: ASYNC110 - the client is in another thread
                await asyncio.sleep(0.001)
        self._expected += 1
        self.now += self._seconds.pop(0)


def test_every_chunk_has_the_time_of_its_arrival() -> None:
    service = ScriptedService(tokens=[9] * 6)  # runs of 1, 1, 3 and 2
    clock = Clock(service, [0.5, 0.25, 0.125, 1.0])
    with live(create_app(service)) as url:
        load, _ = send(url, Streams(1), ("on",), QUESTIONS[:1], clock)
    [sample] = load.measured[0].rounds[0].samples
    assert sample.answer is not None
    assert (sample.due_at, sample.answer.arrivals) == (0.0, [0.5, 0.75, 0.875, 1.875])
    assert sample.answer.runs == [1, 1, 3, 2]
    assert load.measured[0].rounds[0].until == 1.875


def test_what_fails_is_kept_with_its_reason_and_the_rest_goes_on() -> None:
    service = ScriptedService()
    long = NumberedPrompt(12, Prompt(prompt="never " * 200))
    with live(create_app(service)) as url:
        load, heard = send(url, Streams(2), ("on",), [*QUESTIONS[:3], long, *QUESTIONS[3:5]])
    samples = load.measured[0].rounds[0].samples
    assert (len(samples), len(heard)) == (6, 6)
    [failed] = [sample for sample in samples if sample.answer is None]
    assert failed.question is long
    assert failed.error is not None
    assert failed.error.status == 400


def test_a_warm_up_that_nobody_answers_is_an_error_and_one_that_works_counts_nothing() -> None:
    async def warm(url: str) -> int:
        async with Client(url) as client:
            load = Load(client, FIELDS, 7, lambda: None)
            answers = await load.warm_up(QUESTIONS[:3])
            assert load.measured == []
            return len(answers)

    with live(create_app(ScriptedService())) as url:
        assert asyncio.run(warm(f"{url}/v1")) == 3
        with pytest.raises(BadAnswer, match="404") as refused:
            asyncio.run(warm(f"{url}/v2"))
    assert refused.value.status == 404
    with pytest.raises(Unreachable):
        asyncio.run(warm(f"{url}/v1"))


def test_a_conversation_is_sent_as_it_is() -> None:
    turns = (Message("system", "be brief"), Message("user", "why?"))
    assert Prompt(messages=turns).chat_fields["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "why?"},
    ]
    assert Prompt(prompt="why?").chat_fields == {"messages": [{"role": "user", "content": "why?"}]}


@pytest.mark.parametrize("usage", [None, 5])
def test_answers_of_a_foreign_server_are_read_by_their_text(usage: int | None) -> None:
    foreign = Foreign(usage=usage)

    async def ask(url: str) -> Any:
        async with Client(f"{url}/v1") as client:
            assert await client.models() == [{"id": "them/13b"}]
            return await client.ask({"model": "them/13b", "messages": []})

    with live(foreign.app) as url:
        answer = asyncio.run(ask(url))
    assert (answer.text, answer.finish_reason, answer.tokens) == ("forty-two", "stop", [])
    assert (len(answer.arrivals), answer.runs, answer.task) == (3, [0, 0, 0], "")
    assert answer.usage == ({} if usage is None else {"completion_tokens": 5})
