"""Whether a verifier runs, as an ingress replica sees it: each that Serve lists is asked once a second.

The question needs no slot of a verifier and is answered beside its passes, so a busy one is never taken for a lost one.
Serve alone may list a verifier for minutes after its node is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from ray.exceptions import RayError

from serve_app.http.disconnect import cancelled

PERIOD = 1.0  # seconds between two rounds of questions, and for an answer to each
PERIOD_OF_OUTAGE = 0.25
MISSES = 3  # rounds without an answer after which no verifier runs

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class Replica(Protocol):
    """What is needed of `ray.serve.request_router.RunningReplica`."""

    async def get_queue_len(self, *, deadline_s: float) -> int: ...


class VerifiersGone(Exception):
    """No verifier runs."""


class VerifierWatch:
    """Asks the `listed` verifiers while it is used. `clock` gives seconds; `period` is that of the questions."""

    def __init__(
        self,
        listed: Callable[[], Sequence[Replica]],
        clock: Callable[[], float] = time.monotonic,
        period: float = PERIOD,
    ) -> None:
        self._listed = listed
        self._clock = clock
        self._period = period
        self._running, self._gone = asyncio.Event(), asyncio.Event()
        self._gone.set()
        self._misses = 0
        self._lost_at: float | None = None  # when the last verifier was lost; None while one runs, and at the start
        self._asking: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """True if a verifier runs."""
        return self._running.is_set()

    @property
    def listed(self) -> int:
        """How many Serve lists."""
        return len(self._listed())

    def begin(self) -> None:
        """Start to ask, unless it is done already."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_forever())

    def heard(self) -> None:
        """A verifier has sent something, so silence has another reason. What a dead one had sent is no sign of life."""
        self._misses = 0

    async def until_running(self, patience: float) -> None:
        """Returns once a verifier runs. Raises `VerifiersGone` after `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                await self._running.wait()
        except TimeoutError as error:
            raise VerifiersGone from error

    async def unless_gone(self, awaited: Awaitable[Result]) -> Result:
        """The result of `awaited`. Cancels it and raises `VerifiersGone` when no verifier runs any more."""
        working = asyncio.ensure_future(awaited)
        watching = asyncio.create_task(self._gone.wait())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise VerifiersGone
            return working.result()
        finally:
            await cancelled(working, watching)

    async def _ask_forever(self) -> None:
        while True:
            begun = self._clock()
            await self.ask()
            period = self._period if self.running else min(self._period, PERIOD_OF_OUTAGE)
            await asyncio.sleep(begun + period - self._clock())

    async def ask(self) -> None:
        """One round of questions."""
        answers = await asyncio.gather(*(self._answer(replica) for replica in self._listed()))
        if any(answers):
            self._misses = 0
            self._found()
            return
        self._misses += 1
        if self.running and (self._misses >= MISSES or not any(answer is None for answer in answers)):
            self._lost()

    async def _answer(self, replica: Replica) -> bool | None:
        """True for an answer, False if the replica is dead, None if it is silent."""
        try:
            async with asyncio.timeout(self._period):
                await replica.get_queue_len(deadline_s=self._period)
        except RayError:
            return False
        except TimeoutError:
            return None
        return True

    def _found(self) -> None:
        self._running.set()
        self._gone.clear()
        if self._lost_at is not None:
            logger.warning("a verifier runs again after %.1f s", self._clock() - self._lost_at)
            self._lost_at = None

    def _lost(self) -> None:
        self._running.clear()
        self._gone.set()
        self._lost_at = self._clock()
        logger.warning("no verifier runs: new requests wait for one, and answers that have begun wait longer")
