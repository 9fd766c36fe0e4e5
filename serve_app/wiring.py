"""The draft side of one generation: asks the router, opens draft sessions, opens them again where one is lost.

Everything here may be slow, wrong or dead without the client seeing more than a slower answer. `close` ends it all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentResponseGenerator

from core.generation import GenerationRequest, Run
from core.messages import OpenSession
from serve_app.config import GENERAL
from serve_app.target_verifier import Started

logger = logging.getLogger(__name__)

MAX_SEATS = 2  # a lost or refused draft session is tried once more
RETRY_AFTER = 0.2  # seconds


class Pools(Protocol):
    """What the wiring needs of the ingress."""

    async def route(self, tokens: Sequence[int]) -> str: ...
    def open_draft(self, task: str, opened: OpenSession) -> DeploymentResponseGenerator[None]: ...


class Wiring:
    """Drafts for the choices of one prompt. `task` is `general` until the router has answered."""

    def __init__(self, pools: Pools, requests: Sequence[GenerationRequest], length: int, task: str | None) -> None:
        self.task = task or GENERAL
        self._pools = pools
        self._requests = requests
        self._length = length
        self._generated: list[list[int]] = [[] for _ in requests]
        self._finished = [False] * len(requests)
        self._routing = asyncio.ensure_future(self._route(task))
        self._drafting: list[asyncio.Task[None]] = []

    def start(self, started: Started) -> None:
        """The verifier holds the sessions: wire a draft to each."""
        self._drafting = [asyncio.create_task(self._draft(started, choice)) for choice in range(len(self._requests))]

    def observe(self, choice: int, run: Run) -> None:
        """Keep what has been generated: a draft that joins later starts from it."""
        self._generated[choice] += run.tokens
        if run.finish_reason is not None:
            self._finished[choice] = True
            if self._drafting:
                self._drafting[choice].cancel()

    def close(self) -> None:
        """End every draft session, also those still queued."""
        self._routing.cancel()
        for drafting in self._drafting:
            drafting.cancel()

    async def _route(self, task: str | None) -> None:
        self.task = task or await self._pools.route(self._requests[0].tokens)

    async def _draft(self, started: Started, choice: int) -> None:
        await self._routing
        for seat in range(MAX_SEATS):
            try:
                await self._hold(self._open(started, choice, seat))
                return
            except (RayError, RayServeException, BackPressureError) as error:
                logger.warning("draft session of %s lost: %s", self.task, type(error).__name__)
                await asyncio.sleep(RETRY_AFTER)

    async def _hold(self, opened: OpenSession) -> None:
        session = self._pools.open_draft(self.task, opened)
        try:
            async for _ in session:
                pass
        finally:
            session.cancel()  # dropping it would leak the session for good

    def _open(self, started: Started, choice: int, seat: int) -> OpenSession:
        request = self._requests[choice]
        return OpenSession(
            session=started.sessions[choice],
            seat=seat,
            verifier=started.verifier,
            tokens=(*request.tokens, *self._generated[choice]),
            prompt_length=request.prompt_length,
            params=request.params,
            choice=request.choice,
            num_speculative_tokens=request.num_speculative_tokens or self._length,
        )
