"""What Ray's metrics are given, recorded in their place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest
from ray.util.metrics import Metric

Recorded = dict[tuple[str, ...], list[float]]  # by the name of a metric and the values of its tags, in their order


class Clock:
    """Of a ledger; a test moves it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def recorded_values(monkeypatch: pytest.MonkeyPatch, prefix: str) -> Recorded:
    """Every value from now on, by names without the prefix, and by tags beside those that metrics have by default."""
    found: Recorded = defaultdict(list)

    def record(metric: Metric, value: float, tags: Mapping[str, str] | None = None) -> None:
        tags = tags or {}
        assert {*tags, *metric.info["default_tags"]} == set(metric.info["tag_keys"])
        found[metric.info["name"].removeprefix(prefix), *tags.values()].append(value)

    monkeypatch.setattr(Metric, "_record", record)
    return found
