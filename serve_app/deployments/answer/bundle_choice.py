"""Which bundle an ingress replica serves the next answer with, as the rollout plans it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from core.rollout.trial import JudgedAnswer
from serve_app.config import ROLLOUT
from serve_app.deployments.answer.serving import Serving, Tallies
from serve_app.deployments.models.plan import FollowerReport, Plan
from serve_app.deployments.models.served_models import ServedModels

MOST_UNTOLD = 10_000  # answers kept for a rollout that does not answer
PATIENCE = 5.0  # seconds for it to answer

logger = logging.getLogger(__name__)


class BundleChoice:
    """The bundles of one ingress replica. Without a rollout the first one serves for good."""

    def __init__(self, served: ServedModels, tallies: Tallies) -> None:
        self._tallies = tallies
        self._servings = {served.version: Serving(served, tallies)}
        self._plan = Plan(0, served)
        self._chosen = 0  # answers since the plan
        self._name = uuid.uuid4().hex
        self._untold: deque[tuple[str | None, JudgedAnswer | None]] = deque(maxlen=MOST_UNTOLD)
        self._rollout: DeploymentHandle[Any] | None = None
        if served.config.bundle is not None:
            self._rollout = DeploymentHandle("Rollout", ROLLOUT)
        self._talking: asyncio.Task[None] | None = None

    @property
    def current(self) -> Serving:
        """The bundle that serves all prompts, or all but a canary's."""
        return self._servings[self._plan.served.version]

    def choose(self, task: str | None) -> Serving:
        """The bundle of an answer that begins now; one that has the `task` which its client names, if any has."""
        self._chosen += 1
        candidate = self._plan.candidate
        due = candidate is not None and int(self._chosen * self._plan.share) > int(
            (self._chosen - 1) * self._plan.share
        )
        serving = self._servings[candidate.version] if candidate is not None and due else self.current
        return serving if task is None or task in serving.served.drafts else self.current

    def begin(self, serving: Serving) -> None:
        """An answer begins."""
        serving.running += 1

    def end(self, serving: Serving, answers: Sequence[JudgedAnswer], *, speculative: bool) -> None:
        """An answer is over, and this is what the target said of its drafts; nothing if none proposed."""
        serving.running -= 1
        if self._rollout is not None and speculative:
            undrafted: list[JudgedAnswer | None] = [None]
            self._untold.extend((serving.version, answer) for answer in answers or undrafted)
        self._forget()

    def talk(self) -> None:
        """Tell the rollout what was judged, and follow its plan; returns at once."""
        if self._rollout is not None and (self._talking is None or self._talking.done()):
            self._talking = asyncio.create_task(self._talk(self._rollout))

    async def _talk(self, rollout: DeploymentHandle[Any]) -> None:
        running = frozenset(one.version for one in self._servings.values() if one.running)
        heard = FollowerReport(self._name, self._plan.number, running, list(self._untold))
        try:
            plan: Plan | None = await asyncio.wait_for(rollout.follow.remote(heard), PATIENCE)
        except (RayError, RayServeException, TimeoutError) as error:
            logger.warning("rollout: %s; serving %s", type(error).__name__, self.current.version)
            return
        for _ in range(min(len(heard.answers), len(self._untold))):
            self._untold.popleft()
        if plan is not None:
            self._follow(plan)

    def _follow(self, plan: Plan) -> None:
        for served in (plan.served, plan.candidate):
            if served is not None and served.version not in self._servings:
                self._servings[served.version] = Serving(served, self._tallies)
        self._plan, self._chosen = plan, 0
        self._forget()

    def _forget(self) -> None:
        """Drop the bundles that no answer uses any more."""
        self._servings = {
            version: one for version, one in self._servings.items() if one.running or version in self._plan.versions
        }
