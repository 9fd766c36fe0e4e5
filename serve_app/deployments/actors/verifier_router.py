"""How Serve chooses a verifier for a generation.

Serve copies this module into every process that calls verifiers, by value. What it imports is the process' own.
"""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import FIFOMixin, LocalityMixin, PendingRequest, RequestRouter, RunningReplica

from serve_app.deployments.answer.verifier_watch import note_router


class VerifierRouter(FIFOMixin, LocalityMixin, RequestRouter):
    """Takes the verifier with the fewest generations."""

    def initialize_state(self, **_: Any) -> None:
        note_router(self)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """One rank, of which Serve takes the one with the fewest requests."""
        near = self.apply_locality_routing(pending_request)
        return [[replica for replica in candidate_replicas if replica.replica_id in near]]
