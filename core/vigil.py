"""Staying awake for what is about to arrive, where nobody else wants the core.

A thread that has slept for the milliseconds of a target pass is slow at first: with a core each, a round's critical
path took 0.82 to 0.92 ms with a draft that slept and 0.51 to 0.69 with one that did not (tests.bench.rounds, Zen 5);
one that woke every millisecond gained nothing. Enters: how long something is awaited. Leaves: whether it has come.
Awake, it offers the core to others over and over, and that there are some shows in time which it did not run: then it
sleeps, as it would have done, and tries again later, ever more rarely.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

LOST, SHARE = 0.002, 0.05  # seconds, and share of those awake, that may go to others: interrupts, the wire's thread
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 256.0  # seconds to the next trial
FORGET = 1.0  # seconds awake, after which what was lost is forgotten, and how often trials failed


class Vigil:
    """Of one thread, which alone may keep it. `clock` is everybody's, `ran` the thread's own; both in seconds."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, ran: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._ran = ran
        self._awake = self._lost = 0.0
        self._pause = FIRST_PAUSE
        self._next = 0.0  # no trial before

    def keep(self, arrived: Callable[[], bool], seconds: float) -> bool:
        """Ask for so long whether something has arrived; False where nothing has, and as soon as it is no use."""
        began = now = self._clock()
        if began < self._next:
            return False
        ran, found, lost = self._ran(), False, 0.0
        while not found and now < began + seconds:
            found = arrived()
            os.sched_yield()
            now = self._clock()
            lost = now - began - (self._ran() - ran)
            if self._lost + lost > LOST + SHARE * (self._awake + now - began):
                self._next, self._pause = now + self._pause, min(2 * self._pause, LONGEST_PAUSE)
                self._awake = self._lost = 0.0
                return found
        self._awake, self._lost = self._awake + now - began, self._lost + lost
        if self._awake > FORGET:
            self._awake, self._lost, self._pause = 0.0, 0.0, FIRST_PAUSE
        return found
