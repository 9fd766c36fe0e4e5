"""Counts of the last hour, minute by minute: what a service tells of its answers and requests over time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

HOUR = 60  # minutes
SECONDS = 60  # of a minute

Counted = TypeVar("Counted", bound=Hashable)
Minutes = Mapping[int, Counter[Counted]]
"""What was counted, by the Unix time at which a minute began, the oldest first."""


class MinuteCounts(Generic[Counted]):
    """Counts whatever has a hash. `clock` gives Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._minutes: dict[int, Counter[Counted]] = {}

    def add(self, counted: Counted, number: int = 1) -> None:
        minute = int(self._clock()) // SECONDS * SECONDS
        if minute not in self._minutes:
            self._minutes = {**self._of_last_hour(), minute: Counter()}
        self._minutes[minute][counted] += number

    def minutes(self) -> dict[int, Counter[Counted]]:
        """Copies of the minutes in which something was counted."""
        return {minute: counts.copy() for minute, counts in self._of_last_hour().items()}

    def _of_last_hour(self) -> dict[int, Counter[Counted]]:
        first = self._clock() - HOUR * SECONDS
        return {minute: counts for minute, counts in self._minutes.items() if minute > first}


def summed(several: Iterable[Minutes[Counted]]) -> dict[int, Counter[Counted]]:
    """The counts of several replicas together."""
    total: dict[int, Counter[Counted]] = {}
    for minutes in several:
        for minute, counts in minutes.items():
            total.setdefault(minute, Counter()).update(counts)
    return dict(sorted(total.items()))
