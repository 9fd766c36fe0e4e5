"""Three times as many requests as a service can answer: what is left of its goodput, and how the rest is turned away.

Capacity is what a closed loop gets answered with every place taken. Then requests arrive at random, three times as
many. Beside them are connections that say nothing, and clients that read slowly.

    python -m tests.bench.overload
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec
import numpy as np
import psutil

from serve_app.client import Answer, BadAnswer, Client
from tests.bench.output import header, save
from tests.bench.served import Served
from tests.family.corpora import TASKS, items

PLACES, QUEUED = 8, 16
CONFIG = f"""
name: overloaded
target: {{model: "family:target", threads: 1, decoder: torch, max_sessions: {PLACES}, max_queued: {QUEUED}}}
draft: {{model: "family:draft"}}
bundle: "family:bundle"
"""
SETTLING = 15.0  # seconds after the load until memory and descriptors are read again
LINE_S = 0.5  # that a slow reader takes for a line


class Held(msgspec.Struct, frozen=True):
    """What all processes of the service hold together."""

    megabytes: float
    descriptors: int

    @classmethod
    def by(cls, processes: Sequence[psutil.Process]) -> Held:
        megabytes, descriptors = 0.0, 0
        for process in processes:
            with suppress(psutil.Error):
                megabytes += process.memory_info().rss / 1e6
                descriptors += process.num_fds()
        return cls(round(megabytes), descriptors)


class Asked(msgspec.Struct, frozen=True):
    """A request: seconds until its first token (or refusal) and its end; `status` is that of a refusal."""

    first: float
    ended: float
    at: float
    status: int = 200
    tokens: int = 0


class Figures(msgspec.Struct, frozen=True):
    """Rates are answers a second, times seconds."""

    capacity: float
    arrivals: float
    goodput: float
    answered: int
    shed: int
    other: dict[str, int]
    shed_median: float
    shed_p99: float
    first_median: float
    first_p99: float
    bound: float
    before: Held
    after: Held
    idle_alive: int
    idle: int
    slow_equal: int
    slow: int

    @property
    def share(self) -> float:
        return self.goodput / self.capacity


class Bench:
    """Asks one service."""

    def __init__(self, served: Served, max_tokens: int) -> None:
        self._served = served
        self._max_tokens = max_tokens
        each = [items(task, 40, seed=23) for task in TASKS]
        self._prompts = [item.prompt for row in zip(*each, strict=True) for item in row]
        self._rng = random.Random(1)
        self._count = 0

    async def run(self, chosen: argparse.Namespace) -> Figures:
        async with Client(f"{self._served.url}/v1") as client:
            await self._closed(client, 4.0)  # warm
            before = Held.by(self._served.processes())
            told("capacity")
            capacity = await self._capacity(client, chosen.capacity_s)
            told(f"capacity is {capacity:.2f} answers a second; now three times as many for {chosen.seconds:.0f} s")
            idle = await self._connections(chosen.idle)
            slow = [asyncio.create_task(self._slow(number)) for number in range(chosen.slow)]
            began = time.perf_counter()
            asked = await self._arrivals(client, chosen.times * capacity, chosen.seconds)
            until = began + chosen.seconds
            alive = sum(not reader.at_eof() for reader, _ in idle)
            for _, writer in idle:
                writer.close()
            equal = await self._equal(client, await asyncio.gather(*slow))
        await asyncio.sleep(SETTLING)
        return figures(asked, capacity, chosen, until, before, Held.by(self._served.processes()), alive, equal)

    async def _capacity(self, client: Client, seconds: float) -> float:
        """Answers a second of a closed loop that takes every place and half the queue."""
        began = time.perf_counter()
        asked = await self._closed(client, seconds)
        inside = [one for one in asked if one.ended <= began + seconds]
        return len(inside) / seconds

    async def _closed(self, client: Client, seconds: float) -> list[Asked]:
        until, asked = time.perf_counter() + seconds, list[Asked]()

        async def stream() -> None:
            while time.perf_counter() < until:
                asked.append(await self._ask(client))

        await asyncio.gather(*(stream() for _ in range(PLACES + QUEUED // 2)))
        return asked

    async def _arrivals(self, client: Client, per_second: float, seconds: float) -> list[Asked]:
        until, asking = time.perf_counter() + seconds, list[asyncio.Task[Asked]]()
        while time.perf_counter() < until:
            await asyncio.sleep(self._rng.expovariate(per_second))
            asking.append(asyncio.create_task(self._ask(client)))
        return list(await asyncio.gather(*asking))

    async def _ask(self, client: Client) -> Asked:
        self._count += 1
        began = time.perf_counter()
        try:
            answer = await client.ask(self._body(self._count))
        except BadAnswer as error:
            ended = time.perf_counter()
            return Asked(ended - began, ended, began, error.status or 0)
        return Asked(answer.arrivals[0] - began, time.perf_counter(), began, tokens=len(answer.tokens))

    def _body(self, number: int) -> dict[str, Any]:
        prompt = self._prompts[number % len(self._prompts)]
        return {
            "model": "overloaded",
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self._max_tokens,
            "seed": number,
            "temperature": number % 2,
        }

    async def _connections(self, number: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        url = httpx.URL(self._served.url)
        return [await asyncio.open_connection(url.host, url.port) for _ in range(number)]

    async def _slow(self, number: int) -> tuple[int, str]:
        """A client that reads slowly, and comes again while it is turned away; its question and the answer's text."""
        body = {**self._body(number), "stream": True}
        timeout = httpx.Timeout(300.0)
        async with httpx.AsyncClient(base_url=self._served.url, timeout=timeout, trust_env=False) as client:
            while True:
                async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                    if response.status_code == httpx.codes.OK:
                        text = ""
                        async for line in response.aiter_lines():
                            if line.startswith("data: {"):
                                chunk = msgspec.json.decode(line.removeprefix("data: "))
                                text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
                                await asyncio.sleep(LINE_S)
                        return number, text
                    wait = float(response.headers["retry-after"])
                await asyncio.sleep(wait)

    async def _equal(self, client: Client, answers: Sequence[tuple[int, str]]) -> int:
        again: list[Answer] = [await client.ask(self._body(number)) for number, _ in answers]
        return sum(answer.text == text for answer, (_, text) in zip(again, answers, strict=True))


def figures(
    asked: Sequence[Asked],
    capacity: float,
    chosen: argparse.Namespace,
    until: float,
    before: Held,
    after: Held,
    alive: int,
    equal: int,
) -> Figures:
    answered = [one for one in asked if one.status == httpx.codes.OK]
    shed = [one for one in asked if one.status == httpx.codes.SERVICE_UNAVAILABLE]
    others = [one.status for one in asked if one.status not in (httpx.codes.OK, httpx.codes.SERVICE_UNAVAILABLE)]
    first, refused = [one.first for one in answered], [one.first for one in shed] or [0.0]
    held = float(np.mean([one.ended - one.at - one.first for one in answered]))
    return Figures(
        capacity=capacity,
        arrivals=len(asked) / chosen.seconds,
        goodput=sum(one.ended <= until for one in answered) / chosen.seconds,
        answered=len(answered),
        shed=len(shed),
        other={str(status): others.count(status) for status in sorted(set(others))},
        shed_median=float(np.median(refused)),
        shed_p99=float(np.quantile(refused, 0.99)),
        first_median=float(np.median(first)),
        first_p99=float(np.quantile(first, 0.99)),
        bound=(QUEUED + PLACES) / capacity + held,
        before=before,
        after=after,
        idle_alive=alive,
        idle=chosen.idle,
        slow_equal=equal,
        slow=chosen.slow,
    )


def page(found: Figures) -> str:
    cells = {
        "capacity, answers/s": f"{found.capacity:.2f}",
        "arrivals/s": f"{found.arrivals:.2f}",
        "answers/s, of capacity": f"{found.goodput:.2f}, {found.share:.2f}",
        "answered; turned away; other": f"{found.answered}; {found.shed}; {found.other or 0}",
        "first token, median and p99, s": f"{found.first_median:.2f}, {found.first_p99:.2f}",
        "the queue and one answer, s": f"{found.bound:.2f}",
        "turned away within, median and p99, ms": f"{1e3 * found.shed_median:.0f}, {1e3 * found.shed_p99:.0f}",
        "memory before and after, MB": f"{found.before.megabytes:.0f}, {found.after.megabytes:.0f}",
        "descriptors before and after": f"{found.before.descriptors}, {found.after.descriptors}",
        "idle connections that are open": f"{found.idle_alive} of {found.idle}",
        "slow readers whose answer is equal": f"{found.slow_equal} of {found.slow}",
    }
    return "\n".join([*header(["overload", ""]), *(f"| {name} | {cell} |" for name, cell in cells.items())]) + "\n"


def told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overload", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="of overload (default 300)")
    parser.add_argument("--capacity-s", type=float, default=60.0, help="seconds in which capacity is measured")
    parser.add_argument("--times", type=float, default=3.0, help="arrivals, in times capacity (default 3)")
    parser.add_argument("--idle", type=int, default=200, help="connections that say nothing (default 200)")
    parser.add_argument("--slow", type=int, default=50, help="clients that read slowly (default 50)")
    parser.add_argument("--max-tokens", type=int, default=48, help="of an answer (default 48)")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/overload"))
    return parser


def main() -> None:
    chosen = options().parse_args()
    with tempfile.TemporaryDirectory(prefix="overload") as directory:
        served = Served(Path(directory), CONFIG)
        try:
            found = asyncio.run(Bench(served, chosen.max_tokens).run(chosen))
        finally:
            served.command.kill()
    save(chosen, "overload", page(found), msgspec.to_builtins(found))


if __name__ == "__main__":
    main()
