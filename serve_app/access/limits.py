"""Limits per client: requests at a time, requests and tokens a minute, as OpenAI's headers tell them.

Every ingress replica counts for itself. A bucket per minute fills evenly. A request is let in while each bucket has
something left; what its answer takes beyond that is owed.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

from core.errors import InvalidRequest
from core.generation import GenerationRequest
from serve_app.access_config import Limits
from serve_app.http.request_history import Allowed, Client, Limited
from serve_app.http.service import ChoiceRun, Service, Speculation

MINUTE = 60.0  # seconds
WAIT_FOR_ROOM = 1  # seconds after which a client with too many requests at a time may try again
COMPUTING = frozenset({"POST"})  # the methods of requests that are limited; others read facts

Clock = Callable[[], float]


class TooMany(InvalidRequest):
    """A client is over a limit; it may try again after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(None, message, status=429, code="rate_limit_exceeded")
        self.retry_after_s = retry_after_s


class Bucket:
    """Holds at most `per_minute`, gains that in a minute, and may owe. `clock` gives seconds."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._level = float(per_minute)
        self._at = clock()

    def take(self, amount: int) -> None:
        now = self._clock()
        self._level, self._at = self._at_time(now) - amount, now

    @property
    def remaining(self) -> int:
        return max(0, math.floor(self._now()))

    @property
    def full_in(self) -> float:
        """Seconds until it is full."""
        return (self.per_minute - self._now()) * MINUTE / self.per_minute

    @property
    def opens_in(self) -> float:
        """Seconds until it holds one."""
        return max(0.0, 1 - self._now()) * MINUTE / self.per_minute

    def _now(self) -> float:
        return self._at_time(self._clock())

    def _at_time(self, now: float) -> float:
        return min(float(self.per_minute), self._level + (now - self._at) * self.per_minute / MINUTE)


class Allowance:
    """What one client has open and has left."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._concurrency = limits.concurrency
        self._buckets = {
            unit: Bucket(per_minute, clock)
            for unit, per_minute in (("requests", limits.requests_per_minute), ("tokens", limits.tokens_per_minute))
            if per_minute is not None
        }
        self._open = 0

    def enter(self) -> None:
        """A request begins. Raises `TooMany`."""
        for unit, bucket in self._buckets.items():
            if not bucket.remaining:
                wait = math.ceil(bucket.opens_in)
                raise TooMany(f"over the limit of {bucket.per_minute} {unit} per minute; try again in {wait} s", wait)
        if self._concurrency is not None and self._open >= self._concurrency:
            raise TooMany(f"over the limit of {self._concurrency} requests at a time; wait for one", WAIT_FOR_ROOM)
        self._open += 1
        self._take("requests", 1)

    def leave(self) -> None:
        self._open -= 1

    def charge(self, tokens: int) -> None:
        self._take("tokens", tokens)

    def _take(self, unit: str, amount: int) -> None:
        if unit in self._buckets:
            self._buckets[unit].take(amount)

    @property
    def limited(self) -> dict[str, Allowed]:
        """What is left of each limit."""
        buckets = {unit: Allowed(bucket.per_minute, bucket.remaining) for unit, bucket in self._buckets.items()}
        if self._concurrency is None:
            return buckets
        return buckets | {"concurrency": Allowed(self._concurrency, self._concurrency - self._open)}

    def headers(self) -> dict[str, str]:
        """OpenAI's: the limits, what is left of them, and when each will be whole again."""
        headers: dict[str, str] = {}
        for unit, bucket in self._buckets.items():
            headers[f"x-ratelimit-limit-{unit}"] = str(bucket.per_minute)
            headers[f"x-ratelimit-remaining-{unit}"] = str(bucket.remaining)
            headers[f"x-ratelimit-reset-{unit}"] = duration(bucket.full_in)
        return headers


class Allowances:
    """Those of an ingress replica's clients, by the names of their keys; `None` stands for all that have none."""

    def __init__(self, limits: Limits, clock: Clock = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._by_name: dict[str | None, Allowance] = {}

    def of(self, name: str | None) -> Allowance:
        if name not in self._by_name:
            self._by_name[name] = Allowance(self._limits, self._clock)
        return self._by_name[name]

    def limited(self) -> dict[Client, Limited]:
        """What is left of the limits of each client that has asked for anything."""
        return {name: allowance.limited for name, allowance in self._by_name.items()}


charged: ContextVar[Allowance | None] = ContextVar("charged", default=None)
"""That of the client whose request is being answered."""


class Metered:
    """A service that charges the tokens of prompts and answers to the client of the request; else as `service`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    async def generate(
        self, requests: list[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        allowance = charged.get()
        owed = requests[0].prompt_length  # with the first run, as the prompt is computed by then
        async with aclosing(self._service.generate(requests, speculation)) as runs:
            async for run in runs:
                if allowance is not None:
                    allowance.charge(owed + len(run.run.tokens))
                    owed = 0
                yield run


def duration(seconds: float) -> str:
    """As OpenAI writes it: "20ms", "1s", "6m0s"."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), int(MINUTE))
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
