"""What ingress, rollout and check of drafts tell operators; the command line reads it, so it imports nothing heavy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from core.rollout.state import StateName
from core.rollout.trial import ALL, AcceptanceStats

if TYPE_CHECKING:
    from core.replay.decay import DraftRecord


@dataclass(frozen=True)
class IngressReport:
    """What an ingress replica serves, and what it has counted since it began.

    `pools` has the task of every pool's application, `router` the directory of the router, if there is one. `proposed`
    and `accepted` are tokens of drafts, by application. `traces` has the counters of the trace writer, None if no
    answers are recorded.
    """

    model: str
    bundle: str | None
    pools: Mapping[str, str]
    router: str | None
    proposed: Counter[str]
    accepted: Counter[str]
    traces: Counter[str] | None = None

    def plus(self, other: IngressReport) -> IngressReport:
        """The counts of two replicas together."""
        return replace(
            self,
            proposed=self.proposed + other.proposed,
            accepted=self.accepted + other.accepted,
            traces=None if self.traces is None else self.traces + (other.traces or Counter()),
        )


def together(reports: Iterable[IngressReport]) -> IngressReport | None:
    """The reports of all replicas as one, None if there are none."""
    every = list(reports)
    return reduce(IngressReport.plus, every) if every else None


class RolloutReport(NamedTuple):
    """The versions that serve, the state, and what happened last.

    `starting` are the pools of a new bundle, which during a `canary` gets a `share` of the prompts, and on `trial` all.
    `records` has by task (`core.rollout.trial.ALL` among them) how the drafts of the bundle on trial do, or of the one
    that serves, `references` what they are held to. `blocked` has the versions that may not be served, and why.
    """

    version: str | None
    candidate: str | None
    share: float
    state: StateName
    last: str
    records: Mapping[str, AcceptanceStats]
    references: Mapping[str, AcceptanceStats]
    blocked: Mapping[str, str]

    @property
    def answers(self) -> int:
        """Drafted answers of that bundle."""
        return self.records[ALL].answers if ALL in self.records else 0


class DraftCheckReport(NamedTuple):
    """How drafts do in service beside an exact replay of the same answers, by task, as far as any was replayed."""

    records: Mapping[str, DraftRecord]
