"""The result of `taskspec retrain`: the report's path, the published bundle and the reasons, as text or as JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console

from train_jobs.progress_view import print_line


class SlotDecision(msgspec.Struct, frozen=True):
    """The candidate that a slot got (task, mixed, full, general, live), and the reason."""

    decision: str
    reason: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one command.

    `seconds` holds only stages that had something to do. `report` and `version` are None before their stages.
    """

    work: Path
    bundles: Path
    report: Path | None
    version: str | None
    slots: dict[str, SlotDecision]
    seconds: dict[str, float]

    def as_json(self) -> str:
        """One line."""
        return msgspec.json.encode(self, enc_hook=str).decode()

    def print(self, console: Console) -> None:
        lines = [] if self.seconds else ["Every stage was already done; nothing was run."]
        if self.version is not None:
            lines.append(f"published: {self.version} in {self.bundles}")
            lines += [f"  {task}: {slot.decision}, {slot.reason}" for task, slot in self.slots.items()]
        lines.append(f"report: {self.report}" if self.report else f"results: {self.work}")
        for line in lines:
            print_line(console, line)
