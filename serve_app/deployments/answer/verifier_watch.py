"""The health of verifiers: which there are, and whether one runs; each that Serve lists is probed once a second.

A probe needs no place in a verifier and is answered beside its passes, so a busy verifier never counts as lost. Serve
alone may list a verifier for minutes after its node is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import RequestRouter, RunningReplica

from serve_app.http.disconnect import cancelled

PERIOD = 1.0  # seconds between two rounds of probes, and for an answer to each
PERIOD_OF_OUTAGE = 0.25
MISSES = 3  # rounds without an answer after which no verifier runs

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

_routers: WeakValueDictionary[str, RequestRouter] = WeakValueDictionary()  # of this process, by application


def note_router(router: RequestRouter) -> None:
    """The router has been made in this process."""
    _routers[router.app_name] = router


def listed_verifiers(handle: DeploymentHandle[Any]) -> Sequence[RunningReplica]:
    """Those that Serve lists as running, as far as this process knows yet; a dead one may be among them."""
    router = _routers.get(handle.app_name)
    if router is None:
        handle.options(stream=True)  # which makes the router, if this is the first use of the handle
        return ()
    return list(router.curr_replicas.values())


class Replica(Protocol):
    """What is needed of `ray.serve.request_router.RunningReplica`."""

    async def get_queue_len(self, *, deadline_s: float) -> int: ...


class VerifiersGone(Exception):
    """No verifier runs."""


class VerifierWatch:
    """Probes the `listed` verifiers while it is used. `clock` gives seconds; `period` is that of the probes."""

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
        self._probing: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """True if a verifier runs."""
        return self._running.is_set()

    @property
    def num_listed(self) -> int:
        """How many Serve lists."""
        return len(self._listed())

    def begin(self) -> None:
        """Start to probe, unless that is running already."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe_forever())

    def note_sign_of_life(self) -> None:
        """A verifier has sent something, which resets the misses. It does not revive a verifier that counts as lost."""
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

    async def _probe_forever(self) -> None:
        while True:
            began = self._clock()
            await self.probe()
            period = self._period if self.running else min(self._period, PERIOD_OF_OUTAGE)
            await asyncio.sleep(began + period - self._clock())

    async def probe(self) -> None:
        """One round of probes."""
        answers = await asyncio.gather(*(self._answer(replica) for replica in self._listed()))
        if any(answers):
            self._misses = 0
            self._note_running()
            return
        self._misses += 1
        if self.running and (self._misses >= MISSES or not any(answer is None for answer in answers)):
            self._note_lost()

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

    def _note_running(self) -> None:
        self._running.set()
        self._gone.clear()
        if self._lost_at is not None:
            logger.warning("a verifier runs again after %.1f s", self._clock() - self._lost_at)
            self._lost_at = None

    def _note_lost(self) -> None:
        self._running.clear()
        self._gone.set()
        self._lost_at = self._clock()
        logger.warning("no verifier runs: new requests wait for one, and answers that have begun wait longer")
