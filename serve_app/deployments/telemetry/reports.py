"""What ingress, rollout and check of drafts tell operators; the command line reads it, so it imports nothing heavy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from core.rollout.state import StateName
from core.rollout.trial import ALL, AcceptanceStats
from serve_app.http.minute_counts import Minutes, summed
from serve_app.http.owners import KeyHolder
from serve_app.http.request_history import Allowed, Client, Limited, Requested

if TYPE_CHECKING:
    from core.replay.decay import DraftRecord

NOT_ALLOWED = Allowed(0, 0)
IN_A_CHANCE = 1000  # the unit of chances, which are counted as whole numbers


class Answered(NamedTuple):
    """What is counted: `answers`, `tokens` and `passes` without the prefill's, `moved` answers, how they were routed,
    `chance` in thousandths of those routed, and by source `proposed` and `accepted` tokens."""

    task: str
    version: str | None
    what: str
    source: str | None = None


class Fault(NamedTuple):
    """A warning or an error in a replica's log, at a Unix time."""

    at: float
    what: str


@dataclass(frozen=True)
class IngressActivity:
    """What an ingress replica does, and did in the last hour.

    Prompts that are `waiting` may be as many as there is `room`; `running` are those that a verifier has started.
    `moves` are all since it began, between the tasks of drafts. `holders` are those of the valid keys, None if nobody
    is asked for one, and `limited` what is left of a client's limits.
    """

    answers: Minutes[Answered]
    requests: Minutes[Requested]
    waiting: int
    running: int
    room: int
    moves: Counter[tuple[str, str]]
    faults: tuple[Fault, ...]
    holders: tuple[KeyHolder, ...] | None = None
    limited: Mapping[Client, Limited] = field(default_factory=dict)

    def plus(self, other: IngressActivity) -> IngressActivity:
        """That of two replicas together."""
        limited = {
            client: _limited(self.limited.get(client, {}), other.limited.get(client, {}))
            for client in {**self.limited, **other.limited}
        }
        return replace(
            self,
            answers=summed([self.answers, other.answers]),
            requests=summed([self.requests, other.requests]),
            waiting=self.waiting + other.waiting,
            running=self.running + other.running,
            room=self.room + other.room,
            moves=self.moves + other.moves,
            faults=(*self.faults, *other.faults),
            limited=limited,
        )


def _limited(of_client: Limited, more: Limited) -> Limited:
    return {
        what: Allowed(*map(sum, zip(of_client.get(what, NOT_ALLOWED), more.get(what, NOT_ALLOWED), strict=True)))
        for what in {**of_client, **more}
    }


@dataclass(frozen=True)
class IngressReport:
    """What an ingress replica serves, and what it has counted since it began.

    `pools` has the task of every pool's application, `router` the directory of the router, if there is one. `proposed`
    and `accepted` are tokens of drafts, by application. `traces` has the counters of the trace writer, None if no
    answers are recorded. `activity` is for the console.
    """

    model: str
    bundle: str | None
    pools: Mapping[str, str]
    router: str | None
    proposed: Counter[str]
    accepted: Counter[str]
    traces: Counter[str] | None = None
    activity: IngressActivity | None = None

    def plus(self, other: IngressReport) -> IngressReport:
        """The counts of two replicas together."""
        return replace(
            self,
            proposed=self.proposed + other.proposed,
            accepted=self.accepted + other.accepted,
            traces=None if self.traces is None else self.traces + (other.traces or Counter()),
            activity=self.activity and other.activity and self.activity.plus(other.activity),
        )


def together(reports: Iterable[IngressReport]) -> IngressReport | None:
    """The reports of all replicas as one, None if there are none."""
    every = list(reports)
    return reduce(IngressReport.plus, every) if every else None


class RolloutReport(NamedTuple):
    """The versions that serve, the state, and what happened last.

    `starting` are the pools of a new bundle, which during a `canary` gets a `share` of the prompts, and on `trial` all.
    `records` has by task (`core.rollout.trial.ALL` among them) how the drafts of the bundle on trial do, or of the one
    that serves, `references` what they are held to. `blocked` has the versions that may not be served, and why. `money`
    is staked on the drafts on trial being worse: it began with 1, and at `ruin` the service goes back. None are on
    trial if that is None.
    """

    version: str | None
    candidate: str | None
    share: float
    state: StateName
    last: str
    records: Mapping[str, AcceptanceStats]
    references: Mapping[str, AcceptanceStats]
    blocked: Mapping[str, str]
    money: Mapping[str, float] = MappingProxyType({})
    ruin: float | None = None

    @property
    def answers(self) -> int:
        """Drafted answers of that bundle."""
        return self.records[ALL].answers if ALL in self.records else 0


class DraftCheckReport(NamedTuple):
    """How drafts do in service beside an exact replay of the same answers, by task, as far as any was replayed."""

    records: Mapping[str, DraftRecord]
