"""What the rollout tells operators; it imports nothing heavy, since the command line reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from core.rollout.state import StateName
from core.rollout.trial import ALL, AcceptanceStats


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
