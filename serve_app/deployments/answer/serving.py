"""One bundle as an ingress replica serves it: its router, its pools, and what it learns of them.

An answer keeps the bundle that it began with, so a later one changes nothing for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from core.draft_key import GENERAL
from core.policy.rerouting import RoutingTable
from core.wire.messages import OpenSession
from serve_app.config import router_application
from serve_app.deployments.answer.started import Started
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.metrics import Move

Handle = DeploymentHandle[Any]

logger = logging.getLogger(__name__)


@dataclass
class Tallies:
    """What an ingress replica counts, whichever bundle serves: see `SpeculativeIngress.counts`.

    `declining` tells whether the verifier last wanted no draft at all.
    """

    counts: Counter[str] = field(default_factory=Counter)
    moves: Counter[Move] = field(default_factory=Counter)
    declining: bool = False


class Serving:
    """Implements `draft_sessions.Pools`. `running` is the number of answers that use it."""

    def __init__(self, served: ServedModels, tallies: Tallies) -> None:
        self.served = served
        self.table = RoutingTable(served.drafts, served.acceptance)
        self.running = 0
        self._tallies = tallies
        self._pools: dict[str, Handle] = {}
        self._router: Handle | None = None
        if served.router is not None:
            self._router = DeploymentHandle("TaskRouter", router_application(served.router))

    @property
    def version(self) -> str | None:
        return self.served.version

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.served.drafts)

    @property
    def declining(self) -> bool:
        return self._tallies.declining

    @property
    def moves(self) -> Counter[Move]:
        return self._tallies.moves

    def counts(self) -> Counter[str]:
        return self._tallies.counts

    async def route(self, tokens: Sequence[int]) -> Mapping[str, float]:
        """The chance of every task for a prompt; that of `general` is 1 if the router fails or is late."""
        if self._router is None:
            return {GENERAL: 1.0}
        self._tallies.counts["router_calls"] += 1
        try:
            found: Mapping[str, float] = await asyncio.wait_for(
                self._router.route.remote(tokens), self.served.config.router.timeout_s
            )
        except (RayError, RayServeException, TimeoutError) as error:
            logger.warning("router: %s; taking %s", type(error).__name__, GENERAL)
            return {GENERAL: 1.0}
        return found

    def refused(self, started: Started) -> set[str]:
        """The tasks whose drafts would not pay for sessions just started."""
        return {task for task in self.served.drafts if started.declines(self.served.draft_key(task))}

    def declines(self, task: str, started: Started) -> bool:
        """Whether sessions just started go without a draft of this task."""
        declined = started.declines(self.served.draft_key(task))
        self._tallies.counts["drafts_declined"] += declined
        return declined

    def open_draft(self, task: str, opened: OpenSession) -> DeploymentResponseGenerator[None]:
        """Start a session on a replica of the task's pool."""
        self._tallies.counts["draft_calls"] += 1
        if task not in self._pools:
            # serve.get_deployment_handle would block on the controller, and raise if the pool is not deployed.
            handle: Handle = DeploymentHandle("DraftPool", self.served.pool(task))
            self._pools[task] = handle.options(stream=True)
        return cast(DeploymentResponseGenerator[None], self._pools[task].session.remote(opened))
