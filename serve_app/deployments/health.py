"""Whether the service is well, however many ask: each look may take a slot of a verifier, and anybody may ask."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine

FRESH = 1.0  # seconds for which a result is remembered


class SharedLook:
    """The result of `look`: all who wait share one, and those who come within `FRESH` of its end. `clock`: seconds."""

    def __init__(
        self, look: Callable[[], Coroutine[None, None, bool]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._clock = clock
        self._running: asyncio.Task[bool] | None = None
        self._result = False
        self._fresh_until = -math.inf

    async def __call__(self) -> bool:
        if self._clock() < self._fresh_until:
            return self._result
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._looked())
        return await asyncio.shield(self._running)  # it goes on for the others if one of them leaves

    async def _looked(self) -> bool:
        self._result = await self._look()
        self._fresh_until = self._clock() + FRESH
        return self._result
