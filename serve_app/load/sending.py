"""Sends a load to an OpenAI-compatible server, and keeps every answer with the times of its chunks.

A load is a closed loop of concurrent users, each of whom waits for an answer before the next question, or an open loop
of Poisson arrivals.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from core.text.prompts import Prompt
from serve_app.client import OFF, Answer, BadAnswer, Client

Mode = Literal["on", "off"]  # speculation: as the server decides, or off

WARM_UP = 4  # requests before the first arrival that counts
ROUND = 2  # questions per stream before the mode changes


class Streams(msgspec.Struct, frozen=True):
    """A closed loop of concurrent users."""

    streams: int

    def __str__(self) -> str:
        return f"{self.streams} stream{'s' if self.streams > 1 else ''}"


class Arrivals(msgspec.Struct, frozen=True):
    """An open loop of Poisson arrivals."""

    arrivals_per_s: float

    def __str__(self) -> str:
        return f"{self.arrivals_per_s:g} requests/s"


Level = Streams | Arrivals


class NumberedPrompt(NamedTuple):
    """A prompt, and its number among all questions."""

    number: int
    prompt: Prompt


@dataclass(frozen=True)
class Sample:
    """A question that was to be sent at `due_at`, and its answer or error."""

    question: NumberedPrompt
    due_at: float
    answer: Answer | None
    error: BadAnswer | None = None


@dataclass
class Round:
    """Questions sent in one mode without a pause.

    The load is full until `until`: in a closed loop the first stream has no question left, in an open loop the last
    answer has arrived. It is None if the round was interrupted before. Times are the client's clock's. `cpu_s` and
    `wall_s` are the client's own CPU time and the duration.
    """

    mode: Mode
    began: float
    samples: list[Sample] = field(default_factory=list)
    until: float | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0


@dataclass
class Measured:
    """All rounds of a level."""

    level: Level
    rounds: list[Round] = field(default_factory=list)


class Load:
    """Sends questions to one server; `fields` are in every request, `answered` is called after each one."""

    def __init__(
        self,
        client: Client,
        fields: Mapping[str, Any],
        seed: int,
        answered: Callable[[], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.measured: list[Measured] = []
        self._client = client
        self._fields = fields
        self._seed = seed
        self._answered = answered
        self._clock = clock

    async def warm_up(self, questions: Sequence[NumberedPrompt]) -> list[Answer]:
        """Send `questions` all at once, to open connections; none counts. Raises `BadAnswer` if none is answered."""
        warm = Round("on", self._clock())
        await _together(self._ask(warm, question, warm.began) for question in questions)
        answers = [sample.answer for sample in warm.samples if sample.answer is not None]
        if not answers and (error := warm.samples[0].error) is not None:
            raise error
        return answers

    async def measure(self, level: Level, questions: Sequence[NumberedPrompt], modes: Sequence[Mode]) -> None:
        """Send all `questions` in every mode."""
        measured = Measured(level)
        self.measured.append(measured)
        for mode, some in rounds(questions, round_size(level, len(questions), modes), modes):
            current = Round(mode, self._clock())
            measured.rounds.append(current)
            cpu, wall = time.process_time(), time.perf_counter()
            try:
                await self._send(level, current, some)
            finally:
                current.cpu_s, current.wall_s = time.process_time() - cpu, time.perf_counter() - wall

    async def _send(self, level: Level, current: Round, questions: Sequence[NumberedPrompt]) -> None:
        if isinstance(level, Streams):
            await self._closed(level.streams, current, questions)
        else:
            await self._open(level.arrivals_per_s, current, questions)

    async def _closed(self, streams: int, current: Round, questions: Sequence[NumberedPrompt]) -> None:
        waiting = deque(questions)

        async def stream() -> None:
            while waiting:
                await self._ask(current, waiting.popleft(), self._clock())
            if current.until is None:
                current.until = self._clock()

        await _together(stream() for _ in range(streams))

    async def _open(self, per_second: float, current: Round, questions: Sequence[NumberedPrompt]) -> None:
        async def arrive(question: NumberedPrompt, due_at: float) -> None:
            await asyncio.sleep(due_at - self._clock())
            await self._ask(current, question, due_at)

        dues = arrivals(current.began, per_second, len(questions), self._seed + questions[0].number)
        await _together(arrive(question, due_at) for question, due_at in zip(questions, dues, strict=True))
        current.until = self._clock()

    async def _ask(self, current: Round, question: NumberedPrompt, due_at: float) -> None:
        body = {
            **self._fields,
            **question.prompt.chat_fields,
            "seed": self._seed + question.number,
            **({"speculation": OFF} if current.mode == "off" else {}),
        }
        try:
            current.samples.append(Sample(question, due_at, await self._client.ask(body)))
        except BadAnswer as error:
            current.samples.append(Sample(question, due_at, None, error))
        self._answered()


def rounds(
    questions: Sequence[NumberedPrompt], size: int, modes: Sequence[Mode]
) -> Iterator[tuple[Mode, list[NumberedPrompt]]]:
    """The questions, `size` at a time, each part in every mode; the first mode alternates."""
    for number, start in enumerate(range(0, len(questions), size)):
        for mode in modes if number % 2 == 0 else reversed(modes):
            yield mode, list(questions[start : start + size])


def round_size(level: Level, questions: int, modes: Sequence[Mode]) -> int:
    """Questions per round: few, so that both modes meet the same conditions, yet enough to load every stream."""
    if len(modes) == 1:
        return questions
    if isinstance(level, Streams):
        return 1 if level.streams == 1 else ROUND * level.streams
    return -(-questions // 2)


def warm_up_size(level: Level) -> int:
    """A question per stream opens all connections of the level."""
    return level.streams if isinstance(level, Streams) else WARM_UP


def arrivals(began: float, per_second: float, number: int, seed: int) -> list[float]:
    """The times of `number` Poisson arrivals, the same for the same seed."""
    rng, due_at = random.Random(seed), began
    dues = []
    for _ in range(number):
        due_at += rng.expovariate(per_second)
        dues.append(due_at)
    return dues


async def _together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)
