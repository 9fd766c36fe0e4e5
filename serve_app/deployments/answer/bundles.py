"""Which bundle serves the next answer, as the rollout plans it: the current one, or for a share of answers a canary.

An answer keeps the bundle that it began with, so a later one changes nothing for it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from core.draft_key import GENERAL
from core.policy.rerouting import RoutingTable
from core.rollout.trial import JudgedAnswer
from core.wire.messages import OpenSession
from serve_app.application_names import ROLLOUT, router_application
from serve_app.deployments.answer.started import Started
from serve_app.deployments.models.plan import FollowerReport, Plan
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.answer_metrics import Move
from serve_app.http.exchange import span_headers

MAX_UNREPORTED = 10_000  # answers that wait for a rollout that does not answer
PATIENCE = 5.0  # seconds for it to answer

Handle = DeploymentHandle[Any]

logger = logging.getLogger(__name__)


@dataclass
class IngressCounts:
    """What an ingress replica counts, whichever bundle serves: see `SpeculativeIngress.counts`.

    `declining` tells whether the verifier declined every draft for the last answer.
    """

    events: Counter[str] = field(default_factory=Counter)
    moves: Counter[Move] = field(default_factory=Counter)
    declining: bool = False


class ServingBundle:
    """One bundle as an ingress replica serves it: its router, its pools, and what is learned of them.

    `running` is the number of answers that use it.
    """

    def __init__(self, served: ServedModels, counts: IngressCounts) -> None:
        self.served = served
        self.counts = counts
        self.table = RoutingTable(served.drafts, served.acceptance)
        self.running = 0
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

    async def route(self, tokens: Sequence[int]) -> Mapping[str, float]:
        """The chance of every task for a prompt; that of `general` is 1 if the router fails or is late."""
        if self._router is None:
            return {GENERAL: 1.0}
        self.counts.events["router_calls"] += 1
        try:
            chances: Mapping[str, float] = await asyncio.wait_for(
                self._router.route.remote(tokens, span_headers()), self.served.config.router.timeout_s
            )
        except (RayError, RayServeException, TimeoutError) as error:
            logger.warning("router: %s; taking %s", type(error).__name__, GENERAL)
            return {GENERAL: 1.0}
        return chances

    def declined(self, started: Started) -> set[str]:
        """The tasks whose drafts the verifier declines for sessions just started."""
        return {task for task in self.served.drafts if started.declines(self.served.draft_key(task))}

    def open_draft(self, task: str, opening: OpenSession) -> DeploymentResponseGenerator[None]:
        """Start a session on a replica of the task's pool."""
        self.counts.events["draft_calls"] += 1
        if task not in self._pools:
            # serve.get_deployment_handle would block on the controller, and raise if the pool is not deployed.
            handle: Handle = DeploymentHandle("DraftPool", self.served.pool(task))
            self._pools[task] = handle.options(stream=True)
        return cast(DeploymentResponseGenerator[None], self._pools[task].session.remote(opening, span_headers()))


class BundleChoice:
    """The bundles of one ingress replica. Without a rollout the first one serves for good."""

    def __init__(self, served: ServedModels, counts: IngressCounts) -> None:
        self._counts = counts
        self._bundles = {served.version: ServingBundle(served, counts)}
        self._plan = Plan(0, served)
        self._num_begun = 0  # answers since the plan
        self._name = uuid.uuid4().hex
        self._unreported: deque[tuple[str | None, JudgedAnswer | None]] = deque(maxlen=MAX_UNREPORTED)
        self._rollout: Handle | None = None
        if served.config.bundle is not None:
            self._rollout = DeploymentHandle("Rollout", ROLLOUT)
        self._reporting: asyncio.Task[None] | None = None

    @property
    def current(self) -> ServingBundle:
        """The bundle that serves all prompts, or all but a canary's."""
        return self._bundles[self._plan.served.version]

    def begin(self, task: str | None) -> ServingBundle:
        """The bundle of an answer that begins now; one that has the `task` which its client names, if any has."""
        bundle = self._next()
        if task is not None and task not in bundle.served.drafts:
            bundle = self.current
        bundle.running += 1
        return bundle

    def end(self, bundle: ServingBundle, answers: Sequence[JudgedAnswer], *, speculative: bool) -> None:
        """An answer is over, and this is what the target judged of its drafts; nothing if none proposed."""
        bundle.running -= 1
        if self._rollout is not None and speculative:
            judged: Sequence[JudgedAnswer | None] = answers or [None]
            self._unreported.extend((bundle.version, answer) for answer in judged)
        self._drop_unused()

    def report(self) -> None:
        """Tell the rollout what was judged, and follow its plan; returns at once."""
        if self._rollout is not None and (self._reporting is None or self._reporting.done()):
            self._reporting = asyncio.create_task(self._report(self._rollout))

    def _next(self) -> ServingBundle:
        plan = self._plan
        self._num_begun += 1
        if plan.candidate is None or int(self._num_begun * plan.share) == int((self._num_begun - 1) * plan.share):
            return self.current
        return self._bundles[plan.candidate.version]

    async def _report(self, rollout: Handle) -> None:
        running = frozenset(bundle.version for bundle in self._bundles.values() if bundle.running)
        report = FollowerReport(self._name, self._plan.number, running, list(self._unreported))
        try:
            plan: Plan | None = await asyncio.wait_for(rollout.follow.remote(report), PATIENCE)
        except (RayError, RayServeException, TimeoutError) as error:
            logger.warning("rollout: %s; serving %s", type(error).__name__, self.current.version)
            return
        for _ in range(min(len(report.answers), len(self._unreported))):
            self._unreported.popleft()
        if plan is not None:
            self._follow(plan)

    def _follow(self, plan: Plan) -> None:
        for served in (plan.served, plan.candidate):
            if served is not None and served.version not in self._bundles:
                self._bundles[served.version] = ServingBundle(served, self._counts)
        self._plan, self._num_begun = plan, 0
        self._drop_unused()

    def _drop_unused(self) -> None:
        """Drop the bundles that no answer uses any more."""
        versions = self._plan.versions
        self._bundles = {
            version: bundle for version, bundle in self._bundles.items() if bundle.running or version in versions
        }
