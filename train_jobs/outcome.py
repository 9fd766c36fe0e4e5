"""What a retraining came to, for people and for scripts.

Enters: a configuration whose stages have run. Leaves: the report's path, what is live and why, seconds per stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from core.bundle import open_live
from core.manifest import Manifest
from train_jobs.config import RetrainConfig
from train_jobs.pipeline import retrain
from train_jobs.progress import Progress
from train_jobs.progress_view import leave


class Decision(msgspec.Struct, frozen=True):
    """Which candidate a slot got (task, mixed, general, live), and why."""

    decision: str
    reason: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds` holds only stages that had something to do; `report` and `version` are None before their stages."""

    work: Path
    bundles: Path
    report: Path | None
    version: str | None
    slots: dict[str, Decision]
    seconds: dict[str, float]

    def as_json(self) -> str:
        """One line."""
        return msgspec.json.encode(self, enc_hook=str).decode()

    def tell(self, console: Console) -> None:
        """Say it in a few lines."""
        lines = [] if self.seconds else ["All of it was done before; nothing had to be done."]
        if self.version is not None:
            lines.append(f"published: {self.version} in {self.bundles}")
            lines += [f"  {task}: {slot.decision}, {slot.reason}" for task, slot in self.slots.items()]
        lines.append(f"report: {self.report}" if self.report else f"what it left is in {self.work}")
        for line in lines:
            leave(console, line)


def perform(config: RetrainConfig, stages: Sequence[str], console: Console) -> Outcome:
    """Run stages on the Ray this process is connected to, under one view."""
    from ray.exceptions import RayTaskError

    from core.errors import TaskSpecError

    try:
        with Progress(console, stages) as progress:
            report = retrain(config, progress, stages)
    except RayTaskError as error:
        # a worker's error is of its own class as well, but says it with a traceback
        if isinstance(error.cause, TaskSpecError):
            raise error.cause from error
        raise
    manifest = _live(config.bundles) if "publish" in stages else None
    return Outcome(
        work=config.work,
        bundles=config.bundles,
        report=report if "report" in stages else None,
        version=manifest.version if manifest else None,
        slots=_decisions(manifest) if manifest else {},
        seconds=progress.seconds,
    )


def _live(bundles: Path) -> Manifest | None:
    bundle = open_live(bundles).bundle
    return bundle.manifest if bundle else None


def _decisions(manifest: Manifest) -> dict[str, Decision]:
    return {task: Decision(slot.decision, slot.reason) for task, slot in manifest.slots.items()}
