"""What an ingress replica tells operators; it imports nothing heavy, since the command line reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class IngressReport:
    """What is served, and what was counted since the replica began.

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
    whole: IngressReport | None = None
    for report in reports:
        whole = report if whole is None else whole.plus(report)
    return whole
