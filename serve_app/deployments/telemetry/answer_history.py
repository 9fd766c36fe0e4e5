"""What the answers of the last hour brought, by the task of their prompts and the version of the bundle.

An answer is one choice that has finished. It is counted then, so nothing is added to what a token takes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from core.draft_key import GENERAL
from serve_app.deployments.telemetry.reports import IN_A_CHANCE, Answered
from serve_app.http.ledger import ChoiceLedger, by_source
from serve_app.http.minute_counts import MinuteCounts, Minutes

Chosen = Literal["routed", "named", "unasked"]


class Routing(NamedTuple):
    """The task of a prompt: as the router says, with its chance, or as the client does, or nobody was asked."""

    task: str = GENERAL
    how: Chosen = "unasked"
    chance: float = 0.0


class AnswerHistory:
    """The history of an ingress replica."""

    def __init__(self) -> None:
        self._counts = MinuteCounts[Answered]()

    def add(self, entry: ChoiceLedger, routing: Routing, version: str | None) -> None:
        """A choice has finished."""
        counts = {
            "answers": 1,
            "tokens": entry.tokens_of_passes,
            "passes": entry.passes,
            "moved": int(entry.moved),
            routing.how: 1,
            "chance": round(IN_A_CHANCE * routing.chance),
        }
        for what, number in counts.items():
            self._counts.add(Answered(routing.task, version, what), number)
        for source, tokens in by_source(entry.lines.items()).items():
            self._counts.add(Answered(routing.task, version, "proposed", source), tokens.proposed)
            self._counts.add(Answered(routing.task, version, "accepted", source), tokens.accepted)

    def minutes(self) -> Minutes[Answered]:
        return self._counts.minutes()
