"""Clients that ask all the time, hang up or read slowly now and then, and write down everything that they see."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx2 as httpx

from tests.bench.chaos.checker import PATIENCE, REFUSALS
from tests.bench.chaos.history import Entry, Kind, Reference

GIVES_UP = 120.0  # seconds without a new token, after which a client asks no more
PAUSE = 0.25  # seconds between two attempts
LONGEST_PAUSE = 5.0  # seconds, whatever Retry-After says
HANGS_UP, READS_SLOWLY = 0.1, 0.05  # shares of the requests
SLOWLY = 0.2  # seconds between two lines


class Question(NamedTuple):
    """A chat request without `stream`, with a seed."""

    number: int
    body: dict[str, Any]


@dataclass
class _Asking:
    """A request in progress. `hangs_up_after` chunks its client leaves, `line_s` it takes for a line."""

    number: int
    question: Question
    hangs_up_after: int | None
    line_s: float
    progress_at: float
    attempt: int = 0
    tokens: list[int] = field(default_factory=list)
    chunks: int = 0
    done: bool = False
    retry_after: float = PAUSE


class Clients:
    """`urls` are addresses of one service, tried in turn; entries go to `record`, with the time of `clock`."""

    def __init__(
        self,
        urls: Sequence[str],
        questions: Sequence[Question],
        record: Callable[[Entry], None],
        clock: Callable[[], float],
        seed: int = 0,
        key: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._urls = urls
        self._questions = questions
        self._record = record
        self._clock = clock
        self._rng = random.Random(seed)
        self._count = 0
        timeout = httpx.Timeout(PATIENCE + 10.0, connect=5.0)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)  # each attempt may go elsewhere
        self._key = key
        self._http = httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False)

    @property
    def _headers(self) -> dict[str, str]:
        key = self._key()
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    async def close(self) -> None:
        await self._http.aclose()

    async def references(self) -> dict[int, Reference]:
        """What the service answers every question without speculation, before anything is done to it."""
        answers = await asyncio.gather(*map(self._plain, self._questions))
        return dict(answers)

    async def ask_until(self, streams: int, over: Callable[[], bool]) -> None:
        """So many at a time ask one question after another; answers that have begun are waited for."""

        async def stream() -> None:
            while not over():
                await self.ask(self._next())

        async with asyncio.TaskGroup() as group:
            for _ in range(streams):
                group.create_task(stream())

    async def hang_up(self, streams: int) -> None:
        """So many ask at once, and all leave after their second chunk."""
        async with asyncio.TaskGroup() as group:
            for _ in range(streams):
                asking = self._next()
                asking.hangs_up_after = 2
                group.create_task(self.ask(asking))

    def _next(self) -> _Asking:
        rng, number = self._rng, self._count
        self._count += 1
        hangs_up_after = rng.randint(1, 20) if rng.random() < HANGS_UP else None
        line_s = SLOWLY if rng.random() < READS_SLOWLY else 0.0
        return _Asking(number, rng.choice(self._questions), hangs_up_after, line_s, self._clock())

    async def _plain(self, question: Question) -> tuple[int, Reference]:
        body = {**question.body, "speculation": {"enabled": False}}
        response = await self._http.post(f"{self._urls[0]}/v1/chat/completions", json=body, headers=self._headers)
        response.raise_for_status()
        answer = response.json()
        choice, usage = answer["choices"][0], answer["usage"]
        text = choice["message"]["content"] or ""
        return question.number, Reference(choice["token_ids"], text, choice["finish_reason"], usage["prompt_tokens"])

    async def ask(self, asking: _Asking) -> None:
        """Ask until there is a whole answer, the client leaves by itself, or it gives up."""
        while True:
            self._note(asking, "sent", {"question": asking.question.number, "received": len(asking.tokens)})
            asking.retry_after = PAUSE
            try:
                ending = await self._attempt(asking)
            except httpx.RequestError as error:
                ending = "done" if asking.done else f"closed: {type(error).__name__}"
            gives_up = self._clock() - asking.progress_at > GIVES_UP
            if ending == "refused" or ending.startswith("closed"):
                self._note(asking, "end", f"given up, {ending}" if gives_up else ending.partition(":")[0])
                if gives_up:
                    return
            else:
                self._note(asking, "end", ending)
                return
            asking.attempt += 1
            await asyncio.sleep(asking.retry_after)

    async def _attempt(self, asking: _Asking) -> str:
        """How it ended."""
        again = {"continue_from": asking.tokens} if asking.tokens else {}
        options = {"stream": True, "stream_options": {"include_usage": True}}
        url = self._urls[(asking.number + asking.attempt) % len(self._urls)]
        async with self._http.stream(
            "POST",
            f"{url}/v1/chat/completions",
            json={**asking.question.body, **options, **again},
            headers=self._headers,
        ) as response:
            self._note(asking, "status", response.status_code)
            if response.status_code != httpx.codes.OK:
                return await self._refusal(asking, response)
            return await self._read(asking, lines_of(response.aiter_bytes()))

    async def _refusal(self, asking: _Asking, response: httpx.Response) -> str:
        content = await response.aread()
        body: dict[str, Any] = {"not JSON": content.decode(errors="replace")[:200]}
        with suppress(ValueError):
            body = json.loads(content)
        retry_after = response.headers.get("retry-after")
        self._note(asking, "event", json.dumps({**body, "retry_after": retry_after}))
        asking.retry_after = min(float(retry_after or PAUSE), LONGEST_PAUSE)
        return "refused" if response.status_code in REFUSALS else "closed: not answered"

    async def _read(self, asking: _Asking, lines: AsyncIterator[str]) -> str:
        """Read on to the end, whatever comes behind [DONE]."""
        async for line in lines:
            if line.startswith("data: "):
                data = line.removeprefix("data: ")
                self._note(asking, "event", data)
                asking.done = asking.done or data == "[DONE]"
                if data != "[DONE]" and self._took(asking, json.loads(data)):
                    return "cancelled"
            elif line:
                self._note(asking, "comment", line)
            if asking.line_s:
                await asyncio.sleep(asking.line_s)
        return "done" if asking.done else "closed"

    def _took(self, asking: _Asking, chunk: dict[str, Any]) -> bool:
        """Keep the tokens of a chunk; whether the client leaves now."""
        for choice in chunk.get("choices", ()):
            if choice["token_ids"]:
                asking.tokens += choice["token_ids"]
                asking.chunks += 1
                asking.progress_at = self._clock()
        return asking.hangs_up_after is not None and asking.chunks >= asking.hangs_up_after

    def _note(self, asking: _Asking, kind: Kind, value: object) -> None:
        self._record(Entry(self._clock(), kind, value, asking.number, asking.attempt))


async def lines_of(parts: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """What ends with a line feed: texts may have other ends of lines in them."""
    buffered = b""
    async for part in parts:
        *lines, buffered = (buffered + part).split(b"\n")
        for line in lines:
            yield line.decode()
