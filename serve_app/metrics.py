"""What an engine counts, as Ray's metrics: Prometheus reads them from every node, by application and replica.

Told whenever Serve asks a replica for its health.
"""

from __future__ import annotations

from collections import Counter

from ray.serve import metrics

HELD_NOW = {"sessions", "pages", "remembered_pages"}  # all else only grows


class Metrics:
    """`taskspec_<engine>_<count>` for every count of one engine; Ray puts `ray_` before and `_total` behind."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._told: Counter[str] = Counter()
        self._gauges: dict[str, metrics.Gauge] = {}
        self._counters: dict[str, metrics.Counter] = {}

    def tell(self, counts: Counter[str]) -> None:
        for name, value in counts.items():
            full_name = f"taskspec_{self._engine}_{name}"
            if name in HELD_NOW:
                if name not in self._gauges:
                    self._gauges[name] = metrics.Gauge(full_name)
                self._gauges[name].set(value)
            elif value > self._told[name]:
                if name not in self._counters:
                    self._counters[name] = metrics.Counter(full_name)
                self._counters[name].inc(value - self._told[name])
                self._told[name] = value
