"""What ten open consoles take from the service that they look at: answers with and without them, in turns.

    python -m tests.bench.console_cost

A round is the same prompts asked a few at a time, over HTTP. Every second round has lookers, to whom the console's
events are sent as to the page. The bar is 2 % of the service's rate.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import httpx2 as httpx

from tests.bench.output import header, save
from tests.bench.paired import Durations
from tests.bench.served import Served
from tests.eventually import eventually
from tests.family.corpora import items

CONFIG = """
name: looked-at
target: {model: "family:target", threads: 1, decoder: torch}
draft: {model: "family:draft"}
bundle: "family:bundle"
"""
WITH, WITHOUT = "ten consoles", "none"
CLIENTS, PROMPTS, TOKENS = 4, 16, 64
EVENTS = b"GET /console/events HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"


class Lookers:
    """Consoles that are open; `events` counts what they were told.

    They only take what arrives: browsers have processors of their own, and these readers share the service's.
    """

    def __init__(self, url: str, number: int) -> None:
        self.events = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(urlsplit(url),)) for _ in range(number)]

    @contextmanager
    def open(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        eventually(lambda: self.events >= len(self._threads), "every console is told something")
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    def _look(self, service: SplitResult) -> None:
        while not self._over.is_set():
            with socket.create_connection((service.hostname, service.port), timeout=60) as connection:
                connection.sendall(EVENTS % service.netloc.encode())
                while not self._over.is_set() and (received := connection.recv(1 << 16)):
                    self.events += received.count(b"data: ")


def answered(url: str, number: int) -> int:
    """The tokens of one round of answers."""
    prompts = [item.prompt for item in items("math", PROMPTS, number, "held_out")]

    def ask(seeded: tuple[int, str]) -> int:
        seed, prompt = seeded
        body = {"model": "looked-at", "messages": [{"role": "user", "content": prompt}], "seed": seed}
        length = {"max_tokens": TOKENS, "ignore_eos": True}
        response = httpx.post(f"{url}/v1/chat/completions", json=body | length, timeout=120, trust_env=False)
        response.raise_for_status()
        tokens: int = response.json()["usage"]["completion_tokens"]
        return tokens

    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(ask, enumerate(prompts)))


def measured(url: str, rounds: int, lookers: int) -> tuple[Durations, int]:
    """The seconds of every round by whether somebody looked, and how many events the lookers were told."""
    durations, events = Durations(), 0
    answered(url, 0)
    for number in range(rounds):
        for contender in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
            looking = Lookers(url, lookers if contender == WITH else 0)
            with looking.open():
                began = time.monotonic()
                tokens = answered(url, number)
                durations.add(contender, number, time.monotonic() - began, tokens)
            events += looking.events
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return durations, events


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.console_cost", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--lookers", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/console_cost"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        served = Served(Path(home), CONFIG)
        try:
            durations, events = measured(served.url, chosen.rounds, chosen.lookers)
        finally:
            served.command.kill()
    ratio = durations.ratio(WITH, WITHOUT)
    rate = 1 / durations.quartiles(WITHOUT)[0]
    lines = [
        *header(["consoles", ""]),
        f"| tokens a second without, {CLIENTS} clients | {rate:.0f} |",
        f"| with {chosen.lookers} open, times that (95 %) | {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) |",
        f"| events that they were told | {events} |",
    ]
    save(chosen, "console_cost", "\n".join(lines) + "\n", {"ratio": ratio._asdict(), "rate": rate, "events": events})


if __name__ == "__main__":
    main()
