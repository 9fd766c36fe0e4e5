"""What passes between the rollout and the ingress replicas: which bundle serves, and how its drafts do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
