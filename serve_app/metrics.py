"""What engines and ingress count, as Ray's metrics: Prometheus reads them from every node, by application and replica.

Told whenever Serve asks a replica for its health.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from ray.serve import metrics

HELD_NOW = frozenset({"sessions", "pages", "remembered_pages"})  # by an engine; all else only grows


class Metrics:
    """`taskspec_<part>_<count>` for every count of one part; Ray puts `ray_` before and `_total` behind."""

    def __init__(self, part: str, held: Set[str] = HELD_NOW) -> None:
        self._part = part
        self._told: Counter[str] = Counter()
        self._gauges = {name: metrics.Gauge(f"taskspec_{part}_{name}") for name in held}
        self._counters: dict[str, metrics.Counter] = {}

    def tell(self, counts: Counter[str]) -> None:
        for name, gauge in self._gauges.items():
            gauge.set(counts[name])  # sums of counts leave out what is 0
        for name, value in counts.items():
            if name not in self._gauges and value > self._told[name]:
                if name not in self._counters:
                    self._counters[name] = metrics.Counter(f"taskspec_{self._part}_{name}")
                self._counters[name].inc(value - self._told[name])
                self._told[name] = value
