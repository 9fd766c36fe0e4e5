"""The result of `taskspec retrain`: the report's path, the published bundle and the reasons, as text or as JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console

from train_jobs.cluster.progress_view import print_line


class SlotDecision(msgspec.Struct, frozen=True):
    """The candidate that a slot got (see `train_jobs.drafts.candidates`), and the reason."""

    decision: str
    reason: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one command.

    `version` is the bundle that the publish stage wrote, `live` whether it is live now, and `blocked` the reason if it
    may not be served. `seconds` holds only stages that had something to do. `report` and `version` are None before
    their stages.
    """

    work: Path
    bundles: Path
    report: Path | None
    version: str | None
    live: bool
    blocked: str | None
    slots: dict[str, SlotDecision]
    seconds: dict[str, float]

    def as_json(self) -> str:
        """One line."""
        return msgspec.json.encode(self, enc_hook=str).decode()

    def print(self, console: Console) -> None:
        lines = [] if self.seconds else ["Every stage was already done; nothing was run."]
        if self.version is not None:
            lines.append(f"published: {self.version} in {self.bundles}{self._served()}")
            lines += [f"  {task}: {slot.decision}, {slot.reason}" for task, slot in self.slots.items()]
        lines.append(f"report: {self.report}" if self.report else f"results: {self.work}")
        for line in lines:
            print_line(console, line)

    def _served(self) -> str:
        """What becomes of the bundle, if it is not live."""
        if self.live:
            return ""
        deploy = f"`taskspec bundles deploy {self.version}"
        if self.blocked is not None:
            return f"; it is blocked ({self.blocked}), and {deploy} --force` serves it all the same"
        shadow = f"`taskspec bundles shadow {self.version} --config SERVICE_YAML`"
        return f"; it waits as a candidate: {shadow}, then {deploy}`"
