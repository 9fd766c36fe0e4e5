"""How Serve scales a draft pool: by its sessions, as long as its drafts pay; one whose drafts do not counts as empty.

An instance lives in Serve's controller for each pool. Serve itself keeps what it says within `min_replicas` and
`max_replicas`, waits out the delays of the configuration, and starts a pool without replicas once a session waits.
"""

from __future__ import annotations

from typing import Any

from ray.serve.config import AutoscalingContext

from core.policy import pool_worth


class DraftPoolScaling:
    """A policy of Serve's `autoscaling_config`, for deployments that record the two numbers of sessions."""

    def __init__(self) -> None:
        self._pays = True  # until sessions tell

    def __call__(self, context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        """The replicas that the pool should have, and no state for Serve to keep."""
        assert context.config is not None  # Serve has none only for deployments that it does not scale
        sessions, asked_sessions = (_recorded(context, name) for name in ("sessions", "asked_sessions"))
        self._pays = pool_worth.pays(asked_sessions, sessions, paid=self._pays)
        per_replica = context.config.get_target_ongoing_requests()
        return pool_worth.replicas(context.total_num_requests, per_replica, worth=self._pays), {}


def _recorded(context: AutoscalingContext, name: str) -> float:
    """What the replicas recorded in the look-back period: their means, of all together."""
    return sum((context.aggregated_metrics or {}).get(name, {}).values())
