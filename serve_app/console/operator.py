"""Looks at the service and acts on it from within an ingress replica, by the functions that commands call.

Everything here waits for answers, those of this replica among them, so it is called in a thread.
"""

from __future__ import annotations

import time

from serve_app import operations
from serve_app.config import ServiceConfig
from serve_app.console.bundles import PublishedBundles
from serve_app.console.lookout import Snapshot
from serve_app.console.overview import keys_of, overview
from serve_app.deployments.models.served_models import bundle_root
from serve_app.deployments.telemetry.service_status import ServiceStatus


class ServiceOperator:
    """Implements `serve_app.console.actions.Operator` in the ingress replica `replica`."""

    def __init__(self, config: ServiceConfig, replica: str) -> None:
        self._replica = replica
        self._bundles = PublishedBundles(None if config.bundle is None else bundle_root(config))

    def look(self) -> Snapshot:
        """See `Operator.look`. A replica that is to go says so, as an open stream of events would keep it."""
        at = time.time()
        status = operations.service_status()
        activity = status.report.activity if status.report else None
        shown = overview(status, self._bundles, at)
        return Snapshot(shown, keys_of(activity), last=self._leaves(status))

    def deploy(self, version: str, share: float, force: bool) -> str:
        """See `serve_app.operations.deploy_bundle`."""
        return operations.deploy_bundle(version, share, force)

    def scale(self, replicas: dict[str, int]) -> str:
        """See `serve_app.operations.set_replicas`."""
        before = operations.set_replicas(replicas)
        return "; ".join(operations.scaling_in_words(part, replicas[part.name]) for part in before)

    def _leaves(self, status: ServiceStatus) -> bool:
        states = {replica.id: replica.state for part in status.parts for replica in part.replicas}
        return states.get(self._replica) != "RUNNING"
