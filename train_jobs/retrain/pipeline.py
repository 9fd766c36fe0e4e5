"""The stages of a retraining in order. A stage that is done for the present inputs is not run again."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ray.exceptions import RayTaskError
from rich.console import Console

from core.bundle.store import blocked, live_version
from core.errors import ConfigError, TaskSpecError
from train_jobs.cluster.progress import Progress
from train_jobs.config import RetrainConfig
from train_jobs.report.page import PAGE
from train_jobs.retrain.outcome import Outcome, SlotDecision
from train_jobs.stages import STAGES, open_workspace, stage
from train_jobs.work.in_memory import forgetting, prepare
from train_jobs.work.workspace import Workspace


def retrain(config: RetrainConfig, stages: Sequence[str], console: Console) -> Outcome:
    """Run these stages on the Ray this process is connected to, under one progress view.

    If the traces are kept in memory, only the report is left in the work directory. Raises `ConfigError` if an earlier
    stage is not done, if another retraining uses the work directory, or for a setting to correct.
    """
    config = config.anchored()
    prepare(config, every_stage=tuple(stages) == STAGES)
    of_prompts = [config.work / name for name in STAGES if name != "report"]
    with (
        workers_errors(),
        exclusive(config.work),
        Progress(console, stages) as progress,
        forgetting(config, *of_prompts),
    ):
        work = open_workspace(config)
        for name in stages:
            run_stage(work, name, progress)
        return _outcome(work, stages, progress.seconds)


def run_stage(work: Workspace, name: str, progress: Progress) -> None:
    """Run a stage, unless it is done. Raises `ConfigError` if one before it is not."""
    step = work.steps[name]
    if step.done:
        progress.skipped(name)
        return
    if missing := work.unfinished(before=name):
        raise ConfigError(f"stage {name} needs {', '.join(missing)} first; run those, or `taskspec retrain`")
    began = time.monotonic()
    stage(name).run(work, progress)
    step.finish(time.monotonic() - began)


def _outcome(work: Workspace, stages: Sequence[str], seconds: dict[str, float]) -> Outcome:
    bundles, version = work.config.bundles, work.version() if "publish" in stages else None
    slots = {} if version is None else work.winners().slots
    return Outcome(
        work=work.config.work,
        bundles=bundles,
        report=work.steps["report"].directory / PAGE if "report" in stages else None,
        version=version,
        live=version is not None and live_version(bundles) == version,
        blocked=None if version is None else blocked(bundles).get(version),
        slots={task: SlotDecision(slot.decision, slot.reason) for task, slot in slots.items()},
        seconds=seconds,
    )


@contextmanager
def exclusive(work: Path) -> Iterator[None]:
    """Raises `ConfigError` while another process uses this work directory."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it however the process ends
        except BlockingIOError as error:
            raise ConfigError(f"another retraining uses {work}; wait for it to end, or give another --work") from error
        yield


@contextmanager
def workers_errors() -> Iterator[None]:
    """Raise an error of a worker as it was there: Ray's exception is of its class too, but its text is a traceback."""
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, TaskSpecError):
            raise error.cause from error
        raise
