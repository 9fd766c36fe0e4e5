"""Durations of contenders that took turns on the same items, and how much faster one is than another.

The machines are shared and their speed drifts; within one turn it drifts little, so a ratio is taken item by item, and
what is told is the median of the ratios with the 95 % interval of a bootstrap over items.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.bootstrap import estimate


class Ratio(NamedTuple):
    """How many times as fast: median over items, its 95 % interval, and the number of items."""

    median: float
    low: float
    high: float
    items: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


class Durations:
    """Seconds per unit of work of every contender on every item."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, dict[Hashable, float]] = defaultdict(dict)

    def add(self, contender: str, item: Hashable, seconds: float) -> None:
        self._seconds[contender][item] = seconds

    @property
    def contenders(self) -> Sequence[str]:
        return list(self._seconds)

    def quartiles(self, contender: str) -> tuple[float, float, float]:
        """Median, first and third quartile of the contender's seconds."""
        low, median, high = np.quantile(list(self._seconds[contender].values()), [0.25, 0.5, 0.75])
        return float(median), float(low), float(high)

    def ratio(self, faster: str, slower: str, only: Mapping[Hashable, bool] | None = None) -> Ratio:
        """Over the items both have met; of those that `only` holds as true, where it is given."""
        ours, theirs = self._seconds[faster], self._seconds[slower]
        items = [item for item in ours if item in theirs and (only is None or only.get(item))]
        return _median([theirs[item] / ours[item] for item in items])

    def saved(self, faster: str, slower: str, of: Mapping[Hashable, float]) -> Ratio:
        """What `faster` takes less than `slower`, as a share of the seconds that `of` gives for each item."""
        ours, theirs = self._seconds[faster], self._seconds[slower]
        return _median([(theirs[item] - ours[item]) / seconds for item, seconds in of.items()])


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
