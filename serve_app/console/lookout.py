"""One look at the service a second, shared by all who look; nobody looks, nothing is computed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from serve_app.console.permission import Viewer
from serve_app.http.service import Overloaded

EVERY = 1.0  # seconds between the beginnings of two looks
MOST_LOOKERS = 32
TRY_AGAIN = 5  # seconds
PATIENCE = 20.0  # seconds for a look


class Snapshot:
    """What a look found. Of the `keys`, who may not act sees the own one only. At `last` no later look will follow."""

    def __init__(self, shown: Mapping[str, Any], keys: Sequence[Mapping[str, Any]], *, last: bool = False) -> None:
        self.last = last
        self._shown = shown
        self._keys = keys
        self._written: dict[Viewer, bytes] = {}

    def written(self, viewer: Viewer) -> bytes:
        """JSON for this viewer, in one line."""
        if viewer not in self._written:
            keys = [key for key in self._keys if viewer.acts or key["name"] == viewer.name]
            whole = {**self._shown, "viewer": viewer._asdict(), "keys": keys}
            self._written[viewer] = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()
        return self._written[viewer]


class Lookout:
    """Looks by calling `look` in a thread of its own. Raises what that does, and `Overloaded` if it takes too long."""

    def __init__(self, look: Callable[[], Snapshot], every: float = EVERY) -> None:
        self._look = look
        self._every = every
        self._thread = ThreadPoolExecutor(1, "lookout")  # one that hangs takes no thread from the answers
        self._began = -float("inf")
        self._looking: asyncio.Task[Snapshot] | None = None
        self._num_lookers = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Room for one who looks again and again. Raises `Overloaded` if there is none."""
        if self._num_lookers >= MOST_LOOKERS:
            raise Overloaded(f"{MOST_LOOKERS} pages are open already; close one", retry_after_s=TRY_AGAIN)
        self._num_lookers += 1
        try:
            yield
        finally:
            self._num_lookers -= 1

    async def next(self) -> Snapshot:
        """That of the next look, for all who wait for it."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_in_time())
            self._looking.add_done_callback(_retrieve)
        return await asyncio.shield(self._looking)  # the others wait on if this one leaves

    async def _look_in_time(self) -> Snapshot:
        await asyncio.sleep(max(0.0, self._began + self._every - time.monotonic()))
        self._began = time.monotonic()
        looking = asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        try:
            return await asyncio.wait_for(looking, PATIENCE)
        except TimeoutError:
            raise Overloaded("the service does not tell how it does", retry_after_s=TRY_AGAIN) from None


def _retrieve(looking: asyncio.Task[Snapshot]) -> None:
    """asyncio reports an exception that nobody asked for, as after all have left."""
    if not looking.cancelled():
        looking.exception()
