"""When the verifier steps: now with what is in hand, or a little later with proposals that are about to arrive.

Enters: what each session brings now and would bring later, measured step costs and reply times. Leaves: a moment.
The rule takes the larger rate of committed tokens over time (design 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

MAX_MISSES = 2  # a draft that let this many deadlines pass is not waited for until it is heard again


class Smoothed:
    """Running mean of a duration in seconds, with the gain that TCP gives a round trip (RFC 6298)."""

    def __init__(self, initial: float) -> None:
        self.mean = initial

    def observe(self, seconds: float) -> None:
        self.mean += (seconds - self.mean) / 8


class StepCosts:
    """V(rows): seconds of a target pass by its number of rows, each number a running mean of its own (above 16, each
    eighth of a power of two).

    In between is interpolated. More rows never cost less, nor more than in proportion: so a number that was met once,
    in a bad moment, is not believed for ever.
    """

    def __init__(self) -> None:
        self._measured: dict[int, Smoothed] = {}
        self._told: dict[int, float] = {}  # since the last measurement: the rules ask for the same few, many times

    def observe(self, rows: int, seconds: float) -> None:
        self._told.clear()
        size = _size(rows)
        if size in self._measured:
            self._measured[size].observe(seconds)
        else:
            self._measured[size] = Smoothed(seconds)

    def seconds(self, rows: int) -> float:
        """0 before any measurement; outside of what was measured, the nearest."""
        if not self._measured:
            return 0.0
        if rows not in self._told:
            self._told[rows] = self._estimate(rows)
        return self._told[rows]

    def _estimate(self, rows: int) -> float:
        means = [(size, estimate.mean) for size, estimate in self._measured.items()]
        below, above = (0, 0.0), (math.inf, math.inf)
        cap = math.inf
        for size, mean in means:
            if size <= rows:
                below = max(below, (size, mean))
                cap = min(cap, mean * rows / size)
            if size >= rows:
                above = min(above, (size, mean))
                cap = min(cap, mean)
        if not below[0] or above[0] == math.inf:
            return min(cap, below[1] if below[0] else above[1])
        share = (rows - below[0]) / (above[0] - below[0]) if above[0] > below[0] else 0.0
        return min(cap, below[1] + share * (above[1] - below[1]))


def _size(rows: int) -> int:
    step = 1 << max(0, rows.bit_length() - 4)
    return rows // step * step


class Standing(NamedTuple):
    """What one session brings to a pass.

    `arrival` is the seconds until its next proposal is expected, 0 where nothing is waited for; `expected_*` are the
    tokens the pass is expected to commit for it (E), now and once the proposal is there; `rows_*` the rows it feeds.
    """

    arrival: float
    expected_now: float
    expected_then: float
    rows_now: int
    rows_then: int


def seconds_to_wait(standings: Sequence[Standing], costs: StepCosts) -> float:
    """How long to wait for further proposals before stepping; 0 means step now."""
    best_wait, best_rate = 0.0, _rate(standings, 0.0, costs)
    for arrival in sorted({standing.arrival for standing in standings if standing.arrival > 0.0}):
        rate = _rate(standings, arrival, costs)
        if rate > best_rate:
            best_wait, best_rate = arrival, rate
    return best_wait


def _rate(standings: Sequence[Standing], wait: float, costs: StepCosts) -> float:
    tokens = sum(s.expected_then if 0.0 < s.arrival <= wait else s.expected_now for s in standings)
    rows = sum(s.rows_then if 0.0 < s.arrival <= wait else s.rows_now for s in standings)
    seconds = wait + costs.seconds(rows)
    return tokens / seconds if seconds > 0.0 else math.inf
