"""Exports the counters of engines and ingress to Prometheus, as Ray metrics, at every health check of a replica.

A count that an engine keeps in its `counts` exports itself; one that can sink is also named here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from ray.serve import metrics

GAUGES = frozenset({"sessions", "pages", "free_pages", "remembered_pages"})  # of an engine; all other counts only grow
VERIFIER_GAUGES = GAUGES | {"waiting_sessions"}
DRAFT_GAUGES = GAUGES | {"asked_sessions"}


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
