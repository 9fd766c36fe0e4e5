"""Exports the counters of engines and ingress as Ray metrics, at every health check of a replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Any, NamedTuple

from ray.serve import metrics

from serve_app.config import pool_application

GAUGES = frozenset({"sessions", "pages", "remembered_pages"})  # of an engine; all other counts only grow


class Move(NamedTuple):
    """The slots between which answers move: the one whose draft proposed, and the one that took over."""

    left: str
    taken: str


class MoveMetrics:
    """`taskspec_ingress_moves`, with the pools that answers moved from and to."""

    def __init__(self) -> None:
        tags: Any = ("from", "to")  # Ray's annotation admits one, its code any number
        self._counter = metrics.Counter("taskspec_ingress_moves", tag_keys=tags)
        self._exported: Counter[Move] = Counter()

    def export(self, moves: Counter[Move]) -> None:
        for move, number in (moves - self._exported).items():
            self._counter.inc(number, {"from": pool_application(move.left), "to": pool_application(move.taken)})
        self._exported = moves.copy()


class Metrics:
    """`taskspec_<part>_<count>` for every count of one part; Ray adds the prefix `ray_` and, to counters, `_total`."""

    def __init__(self, part: str, gauges: Set[str] = GAUGES) -> None:
        self._part = part
        self._exported: Counter[str] = Counter()
        self._gauges = {name: metrics.Gauge(f"taskspec_{part}_{name}") for name in gauges}
        self._counters: dict[str, metrics.Counter] = {}

    def export(self, counts: Counter[str]) -> None:
        for name, gauge in self._gauges.items():
            gauge.set(counts[name])  # a sum of Counters omits what is 0
        for name, value in counts.items():
            if name not in self._gauges and value > self._exported[name]:
                if name not in self._counters:
                    self._counters[name] = metrics.Counter(f"taskspec_{self._part}_{name}")
                self._counters[name].inc(value - self._exported[name])
                self._exported[name] = value
