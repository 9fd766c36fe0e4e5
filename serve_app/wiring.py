"""The draft side of one generation: asks the router, opens draft sessions, opens them again where one is lost.

Everything here may be slow, wrong or dead without the client seeing more than a slower answer. `close` ends it all.
Among so many sessions that no draft is wanted the router is not asked either: it computes on the same cores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentResponseGenerator

from core.messages import OpenSession
from serve_app.calls import hang_up
from serve_app.config import GENERAL
from serve_app.received import Received
from serve_app.target_verifier import Started

logger = logging.getLogger(__name__)

MAX_SEATS = 2  # a lost or refused draft session is tried once more
RETRY_AFTER = 0.2  # seconds


class Pools(Protocol):
    """What the wiring needs of the ingress."""

    @property
    def crowded(self) -> bool: ...
    async def route(self, tokens: Sequence[int]) -> str: ...
    def spares(self, task: str, started: Started, session: int) -> bool: ...
    def open_draft(self, task: str, opened: OpenSession) -> DeploymentResponseGenerator[None]: ...


class Wiring:
    """Drafts for the choices of one prompt. `task` is `general` until the router has answered, if it is asked."""

    def __init__(self, pools: Pools, received: Received, length: int, task: str | None) -> None:
        self.task = task or GENERAL
        self._pools = pools
        self._received = received
        self._length = length
        self._named = task
        self._routing: asyncio.Task[None] | None = None
        if not pools.crowded:  # else it is seen when the sessions have started
            self._begin_routing()
        self._drafting: dict[int, asyncio.Task[None]] = {}

    def start(self, started: Started, choices: Sequence[int]) -> None:
        """A verifier holds the sessions of `choices`: wire a draft to each."""
        self._drafting = {
            choice: asyncio.create_task(self._draft(started, session, choice))
            for choice, session in zip(choices, started.sessions, strict=True)
        }

    def end(self, choice: int) -> None:
        """A choice has finished."""
        if choice in self._drafting:
            self._drafting.pop(choice).cancel()

    def stop(self) -> None:
        """The verifier is gone or done: end every draft session, also those still queued."""
        for choice in list(self._drafting):
            self.end(choice)

    def close(self) -> None:
        """The generation is over."""
        if self._routing is not None:
            self._routing.cancel()
        self.stop()

    def _begin_routing(self) -> asyncio.Task[None]:
        """Once for all choices."""
        self._routing = self._routing or asyncio.create_task(self._route())
        return self._routing

    async def _route(self) -> None:
        self.task = self._named or await self._pools.route(self._received.request(0).tokens)

    async def _draft(self, started: Started, session: int, choice: int) -> None:
        if not started.spares(session):
            await asyncio.shield(self._begin_routing())  # a choice that ends meanwhile must not take it along
        if self._pools.spares(self.task, started, session):
            return
        for seat in range(MAX_SEATS):
            try:
                await self._hold(self._open(started, session, seat, choice))
                return
            except (RayError, RayServeException) as error:
                logger.warning("draft session of %s lost: %s", self.task, type(error).__name__)
                await asyncio.sleep(RETRY_AFTER)

    async def _hold(self, opened: OpenSession) -> None:
        stream = self._pools.open_draft(self.task, opened)
        try:
            async for _ in stream:
                pass
        finally:
            hang_up(stream)

    def _open(self, started: Started, session: int, seat: int, choice: int) -> OpenSession:
        request = self._received.request(choice)
        return OpenSession(
            session=session,
            seat=seat,
            verifier=started.verifier,
            tokens=request.tokens,
            prompt_length=request.prompt_length,
            params=request.params,
            choice=request.choice,
            num_speculative_tokens=min(request.num_speculative_tokens or self._length, started.window),
        )
