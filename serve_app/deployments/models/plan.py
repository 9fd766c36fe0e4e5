"""What passes between the rollout and the ingress replicas: which bundle serves, and how its drafts do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from core.generation import Run
from core.rollout.trial import JudgedAnswer
from serve_app.deployments.models.served_models import ServedModels


@dataclass(frozen=True)
class Plan:
    """The bundle that serves, and during a canary the one that serves a `share` of the prompts.

    `number` grows from plan to plan.
    """

    number: int
    served: ServedModels
    candidate: ServedModels | None = None
    share: float = 0.0

    @property
    def versions(self) -> frozenset[str | None]:
        return frozenset({self.served.version} | ({self.candidate.version} if self.candidate else set()))

    @property
    def applications(self) -> set[str]:
        """The pools and routers of both."""
        return self.served.applications | (self.candidate.applications if self.candidate else set())


class FollowerReport(NamedTuple):
    """What an ingress replica reports: the number of the plan that it follows, 0 if none; the versions that running
    answers use; and by version the answers that ended since its last report, None for one that no draft proposed for.
    """

    replica: str
    plan: int
    running: frozenset[str | None]
    answers: list[tuple[str | None, JudgedAnswer | None]]


class Judged:
    """Counts of one generation: what the target judged of the drafts for each choice."""

    def __init__(self) -> None:
        self._judged: Counter[int] = Counter()
        self._accepted: Counter[int] = Counter()

    def take(self, choice: int, run: Run) -> None:
        if run.source == "draft" and run.proposed:
            self._judged[choice] += run.accepted + (run.accepted < run.proposed)
            self._accepted[choice] += run.accepted

    def answers(self, prior: Mapping[str, float]) -> list[JudgedAnswer]:
        """One for each choice that a draft proposed for; the router said this of the prompt."""
        task = max(prior, key=lambda name: prior[name])
        return [JudgedAnswer(task, judged, self._accepted[choice]) for choice, judged in self._judged.items()]
