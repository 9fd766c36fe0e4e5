"""What is done to the service: one fault after another, each for a while.

Processes are found by what they run (`ROLES`), on hosts that may be namespaces or just this machine.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.bench.chaos.history import Entry

SECONDS = 5.0  # of a fault
STARTS_WITHIN = 30.0  # seconds in which what runs a part is there, if it has been killed before


class Fault(NamedTuple):
    """`begin` and `end` are called in a thread; what begins with `kill` needs no end."""

    name: str
    begin: Callable[[], object]
    end: Callable[[], object] | None = None


Signal = Callable[[str, signal.Signals], list[int]]
"""Sends a signal to what runs a role; the ids of the processes."""


def hit(send: Callable[[], list[int]], role: str, seconds: float = STARTS_WITHIN) -> list[int]:
    """Send until a process has it, which may be starting. Raises `ProcessLookupError` if there is none in time."""
    until = time.monotonic() + seconds
    while not (pids := send()):
        if time.monotonic() >= until:
            raise ProcessLookupError(f"nothing runs the {role}")
        time.sleep(0.5)
    return pids


def process_faults(send: Signal, roles: Sequence[str]) -> list[Fault]:
    """kill -9 of each role, and SIGSTOP for a while."""
    return [fault for role in roles for fault in (killed(send, role), stopped(send, role))]


def killed(send: Signal, role: str, where: str = "") -> Fault:
    """kill -9 of what runs a role; `where` tells one host from another."""
    return Fault(f"kill {role}{where}", lambda: hit(lambda: send(role, signal.SIGKILL), role))


def stopped(send: Signal, role: str, where: str = "") -> Fault:
    """SIGSTOP for a while."""
    return Fault(
        f"stop {role}{where}",
        lambda: hit(lambda: send(role, signal.SIGSTOP), role),
        lambda: send(role, signal.SIGCONT),
    )


def in_turn(faults: Sequence[Fault], rng: random.Random) -> Iterator[Fault]:
    """Every fault equally often, in another order each time."""
    while True:
        yield from rng.sample(faults, len(faults))


async def inflict(
    faults: Sequence[Fault],
    record: Callable[[Entry], None],
    clock: Callable[[], float],
    over: Callable[[], bool],
    seed: int = 0,
    seconds: float = SECONDS,
) -> None:
    """One fault after another, each at least once. One that fails, as a process may be gone, is written down so."""

    async def act(action: Callable[[], object], name: str) -> None:
        began = clock()
        try:
            await asyncio.to_thread(action)
        except Exception as error:  # noqa: BLE001 - of any kind: the run goes on and its table tells
            name = name and f"{name}, which failed: {type(error).__name__}: {error}"
        record(Entry(began, "fault", name))

    turns = in_turn(faults, random.Random(seed))
    for number, fault in enumerate(turns):
        if number >= len(faults) and over():
            return
        await act(fault.begin, fault.name)
        await asyncio.sleep(seconds)
        if fault.end is not None:
            await act(fault.end, "")
