"""Prompts of the family's tasks, asked all the time by some clients at once, and how well the answers were drafted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any, NamedTuple

import httpx2 as httpx

from tests.eventually import eventually
from tests.family.corpora import items

PATIENCE = 2700.0  # seconds for a retraining beside traffic, on a slow machine
Span = tuple[float, float]  # of the monotonic clock


class Answer(NamedTuple):
    """What was asked, and got. `per_pass` is tokens per target pass."""

    at: float
    task: str
    number: int
    tokens: list[int]
    per_pass: float | None


class Flow(NamedTuple):
    """Traffic that flows: the answers so far, and the clients, which end only once it is over or if they fail."""

    answers: list[Answer]
    clients: list[Future[None]]

    def eventually(self, holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        """Wait for something that must come of it. A client's failure ends the wait: nothing would come any more."""

        def holds_or_fails() -> object:
            for client in self.clients:
                if client.done():
                    client.result()
            return holds()

        eventually(holds_or_fails, what, seconds, self.__str__)

    def __str__(self) -> str:
        if not self.answers:
            return "no answer"
        by_task = Counter(one.task for one in self.answers)
        return f"{dict(by_task)} answers, the last of them {time.monotonic() - self.answers[-1].at:.0f} s ago"


class Traffic(NamedTuple):
    """Prompts with their tasks, for the model `model` of a service. Each client waits for its answer."""

    url: str
    model: str
    asked: list[tuple[str, str]]
    clients: int = 8

    @contextmanager
    def flowing(self, found: list[Answer], *, plain: bool = False) -> Iterator[Flow]:
        """Ask all the time, and again from the start, until the block is over. Every answer is a 200."""
        over = Event()

        def ask(first: int) -> None:
            with httpx.Client(base_url=self.url, timeout=120, trust_env=False) as client:
                turn = first
                while not over.is_set():
                    found.append(self._answer(client, turn % len(self.asked), plain=plain))
                    turn += self.clients

        with ThreadPoolExecutor(self.clients) as pool:
            clients = [pool.submit(ask, first) for first in range(self.clients)]
            try:
                yield Flow(found, clients)
            finally:
                over.set()
            for client in clients:
                client.result()

    def plain_answers(self, numbers: set[int]) -> dict[int, list[int]]:
        """The tokens of these prompts' answers without speculation, which leave no traces."""
        found = list[Answer]()
        with self.flowing(found, plain=True) as flow:
            flow.eventually(
                lambda: {one.number for one in found} >= numbers, f"plain answers to {len(numbers)} prompts"
            )
        return {one.number: one.tokens for one in found}

    def _answer(self, client: httpx.Client, number: int, *, plain: bool) -> Answer:
        task, prompt = self.asked[number]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": 80,
            "seed": number,
            "temperature": number % 2,
            "store": not plain,
        }
        if plain:
            body["speculation"] = {"enabled": False}
        response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        answer = response.json()
        tokens, per_pass = answer["choices"][0]["token_ids"], answer["usage"]["speculation"]["tokens_per_target_pass"]
        return Answer(time.monotonic(), task, number, tokens, per_pass)


def prompts(tasks: Sequence[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Of every task in turn."""
    each = [[(task, item.prompt) for item in items(task, count, seed)] for task in tasks]
    return [one for row in zip(*each, strict=True) for one in row]


def gain(answers: Sequence[Answer], tasks: Sequence[str], before: Span, after: Span) -> float:
    """Tokens per target pass of answers in the later span, times those in the earlier one."""
    earlier, later = (
        [one.per_pass for one in answers if one.task in tasks and since <= one.at < until and one.per_pass]
        for since, until in (before, after)
    )
    return (sum(later) / len(later)) / (sum(earlier) / len(earlier))
