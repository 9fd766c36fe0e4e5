"""Drafts in service beside their replay (`core.replay.decay`), as Ray metrics of the check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.serve import metrics

from core.draft_key import DraftKey
from core.replay.decay import Agreement, DraftRecord

_BY_DRAFT: Any = ("task", "adapter")


class DecayMetrics:
    """`taskspec_replay_*`: counters of tokens, and gauges of the last answers."""

    def __init__(self) -> None:
        self._counters = {
            name: metrics.Counter(f"taskspec_replay_{name}", tag_keys=_BY_DRAFT) for name in Agreement._fields
        }
        self._gap = metrics.Gauge("taskspec_replay_gap", tag_keys=_BY_DRAFT)
        self._decayed = metrics.Gauge("taskspec_replay_decayed", tag_keys=_BY_DRAFT)
        self._exported: dict[DraftKey, Agreement] = {}

    def forget(self, key: DraftKey) -> None:
        """A draft that no longer serves has not decayed."""
        self._exported.pop(key, None)
        self._gap.set(0.0, _tags(key))
        self._decayed.set(0.0, _tags(key))

    def export(self, totals: Mapping[DraftKey, Agreement], records: Mapping[DraftKey, DraftRecord]) -> None:
        """Export what was counted since the last time."""
        for key, total in totals.items():
            before = self._exported.get(key, Agreement())
            for name, counter in self._counters.items():
                if (more := getattr(total, name) - getattr(before, name)) > 0:
                    counter.inc(more, _tags(key))
            record = records.get(key)
            self._gap.set(record.gap.value if record else 0.0, _tags(key))
            self._decayed.set(float(record is not None and record.decayed), _tags(key))
            self._exported[key] = total


def _tags(key: DraftKey) -> dict[str, str]:
    return {"task": key.task, "adapter": key.digest or "none"}
