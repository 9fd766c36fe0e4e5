"""Waiting for something that must come true: within a bound, and saying what it was if it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 60.0  # seconds, as long as a busy machine may need


def eventually(
    holds: Callable[[], object], what: str, seconds: float = PATIENCE, seen: Callable[[], object] | None = None
) -> None:
    """Wait until it `holds`. If it does not, the error says `what` was awaited, and what was `seen` instead."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, late(what, seconds, seen)
        time.sleep(min(0.05, seconds))


async def eventually_async(
    holds: Callable[[], object], what: str, seconds: float = PATIENCE, seen: Callable[[], object] | None = None
) -> None:
    """The same on an event loop, which `holds` must not block."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, late(what, seconds, seen)
        await asyncio.sleep(0)


def late(what: str, seconds: float, seen: Callable[[], object] | None = None) -> str:
    """What the error says."""
    return f"not within {seconds:.0f} s: {what}" + ("" if seen is None else f"; seen: {seen()}")
