"""Which bundle has which share of the prompts, and in which state the rollout is, as Ray metrics of its replica."""

from __future__ import annotations

from typing import Any, get_args

from ray.serve import metrics

from core.rollout.events import NONE
from core.rollout.state import StateName
from serve_app.deployments.models.plan import Plan

_BY_VERSION: Any = ("version",)
_BY_STATE: Any = ("state",)


class RolloutMetrics:
    """`taskspec_rollout_*`: gauges, of every state and of every version in use; of one that was in use, 0 once."""

    def __init__(self) -> None:
        self._state = metrics.Gauge("taskspec_rollout_state", tag_keys=_BY_STATE)
        self._share = metrics.Gauge("taskspec_rollout_share", tag_keys=_BY_VERSION)
        self._created = metrics.Gauge("taskspec_rollout_created_timestamp_seconds", tag_keys=_BY_VERSION)
        self._exported: set[str] = set()

    def export(self, state: StateName, plan: Plan) -> None:
        """1 for the state and 0 for all others; the share of prompts of every version in use, and when it was made."""
        for name in get_args(StateName):
            self._state.set(float(name == state), {"state": name})
        shares = dict[str, float]()
        for served, share in ((plan.served, 1.0 - plan.share), (plan.candidate, plan.share)):
            if served is not None:
                version = served.version or NONE
                shares[version] = share
                if served.created is not None:
                    self._created.set(served.created.timestamp(), {"version": version})
        for version in self._exported | set(shares):
            self._share.set(shares.get(version, 0.0), {"version": version})
        self._exported = set(shares)
