"""V(rows): what a pass of the target costs by its number of rows, as a shape that stays times a pace that changes.

Enters: passes of every size measured before there is work, and every pass since. Leaves: seconds to expect. A machine
that others slow down slows passes of all sizes: were each size's cost a number of its own, one that was last met in a
bad minute would be avoided long after it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import NamedTuple

from core.model.base import Model, Rows

PROFILED_ROWS = (*range(1, 17), 20, 24, 32, 48, 64)
_TURNS = 3  # the first also lays out memory
_PACE_GAIN, _SHAPE_GAIN = 1 / 8, 1 / 32
_LARGEST_RATIO = 2.0  # of what a pass took to what was expected; beyond, it was interrupted
_SESSION = -1


class Smoothed:
    """Running mean of a duration in seconds, with the gain that TCP gives a round trip (RFC 6298)."""

    def __init__(self, initial: float) -> None:
        self.mean = initial

    def observe(self, seconds: float) -> None:
        self.mean += (seconds - self.mean) / 8


class _Curve(NamedTuple):
    """Seconds by size, ascending; the least per row of sizes up to each, and the least of sizes from each on."""

    sizes: list[int]
    seconds: list[float]
    rates: list[float]
    caps: list[float]

    @classmethod
    def through(cls, shape: Mapping[int, float]) -> _Curve:
        sizes = sorted(shape)
        seconds = [shape[size] for size in sizes]
        rates = [each / size for size, each in zip(sizes, seconds, strict=True)]
        return cls(sizes, seconds, [*accumulate(rates, min)], [*accumulate(reversed(seconds), min)][::-1])


class StepCosts:
    """Seconds of a pass by rows; above 16 rows, each eighth of a power of two is a size.

    In between is interpolated. More rows never cost less, nor more than in proportion.
    """

    def __init__(self) -> None:
        self._pace = 1.0
        self._shape: dict[int, float] = {}  # size -> seconds at pace 1
        self._told: dict[int, float] = {}  # since the last measurement: the rules ask for the same few, many times
        self._curve = _Curve.through({})  # since then, too

    def observe(self, rows: int, seconds: float) -> None:
        self._told.clear()
        size = _size(rows)
        known = self._shape.get(size)
        if not known:
            self._shape[size] = seconds / self._pace
            return
        beyond = min(seconds / (self._pace * known), _LARGEST_RATIO) - 1.0
        self._pace *= 1.0 + _PACE_GAIN * beyond
        self._shape[size] *= 1.0 + _SHAPE_GAIN * beyond

    def seconds(self, rows: int) -> float:
        """0 before any measurement; below what was measured the least of it, beyond it as the upper half goes on."""
        if not self._shape:
            return 0.0
        if not self._told:
            self._curve = _Curve.through(self._shape)
        if rows not in self._told:
            self._told[rows] = self._pace * self._estimate(rows)
        return self._told[rows]

    def at_rest(self, rows: int) -> float:
        """As `seconds`, but at a pace that does not follow what passes have lately taken."""
        return self.seconds(rows) / self._pace

    def per_row(self, rows: int, more: int) -> float:
        """Seconds that each of `more` rows adds to a pass of so many."""
        return (self.seconds(rows + more) - self.seconds(rows)) / more

    def _estimate(self, rows: int) -> float:
        """At pace 1."""
        sizes, seconds, rates, caps = self._curve
        above = bisect_left(sizes, rows)
        if above == len(sizes):
            largest, half = sizes[-1], sizes[-1] // 2
            known = self._estimate(largest)
            each = (known - self._estimate(half)) / (largest - half)
            return min(rates[-1] * rows, known + each * (rows - largest))
        if sizes[above] == rows:
            return min(rates[above] * rows, caps[above])
        if above == 0:
            return caps[0]
        share = (rows - sizes[above - 1]) / (sizes[above] - sizes[above - 1])
        between = seconds[above - 1] + share * (seconds[above] - seconds[above - 1])
        return min(rates[above - 1] * rows, caps[above], between)


def profile(model: Model, clock: Callable[[], float], costs: StepCosts) -> None:
    """Tell `costs` the quickest of some passes of each size; the model must hold no sessions, and holds none after."""
    sizes = [rows for rows in PROFILED_ROWS if rows < model.context]
    model.open(_SESSION)
    try:
        for rows, seconds in _quickest(model, clock, sizes).items():
            costs.observe(rows, seconds)
    finally:
        model.close(_SESSION)


def _quickest(model: Model, clock: Callable[[], float], sizes: list[int]) -> dict[int, float]:
    quickest = dict.fromkeys(sizes, math.inf)
    for _ in range(_TURNS):
        for rows in sizes:
            began = clock()
            model.forward([Rows(_SESSION, [0] * rows, rows)]).argmax(-1).tolist()
            quickest[rows] = min(quickest[rows], clock() - began)
            model.rollback(_SESSION, 0)
    return quickest


def _size(rows: int) -> int:
    step = 1 << max(0, rows.bit_length() - 4)
    return rows // step * step
