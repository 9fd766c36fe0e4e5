"""Durations of contenders that took turns on the same items, and how much faster one is than another.

The machines are shared and their speed drifts; within one turn it drifts little, so a ratio is taken item by item, and
what is told is the median of the ratios with the 95 % interval of a bootstrap over items. Beside it, where items differ
in size, the ratio over all units of work together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.confidence_intervals import estimate


class Ratio(NamedTuple):
    """How many times as fast: over all items or the median of them, its 95 % interval, and the number of items."""

    value: float
    low: float
    high: float
    items: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


class Durations:
    """Seconds of every contender on every item, and the units of work that the item was for it."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, dict[Hashable, float]] = defaultdict(dict)  # per unit
        self._units: defaultdict[str, dict[Hashable, float]] = defaultdict(dict)

    def add(self, contender: str, item: Hashable, seconds: float, units: float = 1.0) -> None:
        self._seconds[contender][item] = seconds / units
        self._units[contender][item] = units

    @property
    def contenders(self) -> Sequence[str]:
        return list(self._seconds)

    def quartiles(self, contender: str) -> tuple[float, float, float]:
        """Median, first and third quartile of the contender's seconds per unit."""
        low, median, high = np.quantile(list(self._seconds[contender].values()), [0.25, 0.5, 0.75])
        return float(median), float(low), float(high)

    def ratio(self, faster: str, slower: str, only: Mapping[Hashable, bool] | None = None) -> Ratio:
        """Over the items both have met; of those that `only` holds as true, where it is given."""
        ours, theirs = self._seconds[faster], self._seconds[slower]
        items = [item for item in ours if item in theirs and (only is None or only.get(item))]
        return _median([theirs[item] / ours[item] for item in items])

    def overall(self, faster: str, slower: str) -> Ratio:
        """Of all units together, over the items both have met."""
        items = [item for item in self._seconds[faster] if item in self._seconds[slower]]
        ours, theirs = (
            np.array([(self._seconds[name][item] * self._units[name][item], self._units[name][item]) for item in items])
            for name in (faster, slower)
        )

        def ratios(drawn: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            (our_seconds, our_units), (their_seconds, their_units) = (drawn @ ours).T, (drawn @ theirs).T
            quotients: npt.NDArray[np.float64] = their_seconds / their_units / (our_seconds / our_units)
            return quotients

        return Ratio(*estimate(len(items), ratios), len(items))


def _median(ratios: Sequence[float]) -> Ratio:
    values = np.sort(ratios)
    count = len(values)

    def medians(drawn: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        ranks = drawn.cumsum(axis=1)
        below, above = (values[(ranks > rank).argmax(axis=1)] for rank in ((count - 1) // 2, count // 2))
        return (below + above) / 2

    return Ratio(*estimate(count, medians), count)


def rotated(contenders: Sequence[str], turn: int) -> list[str]:
    """The contenders in the order of a turn: each comes first as often as any other."""
    at = turn % len(contenders)
    return [*contenders[at:], *contenders[:at]]
