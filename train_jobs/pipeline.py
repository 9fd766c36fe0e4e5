"""The stages of a retraining in order. A stage that is done for the present inputs is not run again."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ray.exceptions import RayTaskError
from rich.console import Console

from core.bundle.store import blocked, live_version
from core.errors import ConfigError, TaskSpecError
from train_jobs.config import RetrainConfig
from train_jobs.in_memory import forgetting, prepare, results
from train_jobs.outcome import Outcome, SlotDecision
from train_jobs.progress import Progress
from train_jobs.report.page import PAGE
from train_jobs.stages import StageName, align, collect, evaluate, partition, publish, report, router
from train_jobs.workspace import Workspace

_RUN: dict[StageName, Callable[[Workspace, Progress], None]] = {
    "collect": collect.run,
    "partition": partition.run,
    "align": align.run,
    "router": router.run,
    "evaluate": evaluate.run,
    "publish": publish.run,
    "report": report.run,
}


def retrain(config: RetrainConfig, stages: Sequence[StageName], console: Console) -> Outcome:
    """Run these stages on the Ray this process is connected to, under one progress view.

    If the traces are kept in memory, only the report is left in the work directory. Raises `ConfigError` if an earlier
    stage is not done, if another retraining uses the work directory, or for a setting to correct.
    """
    config = config.anchored()
    prepare(config, stages)
    try:
        with (
            exclusive(config.work),
            Progress(console, stages) as progress,
            forgetting(config, *results(config.work)),
        ):
            work = Workspace(config)
            for name in stages:
                run_stage(work, name, progress)
            outcome = _outcome(work, stages, progress.seconds)
    except RayTaskError as error:
        # Ray's exception is of the worker's class too, but its text is a traceback
        if isinstance(error.cause, TaskSpecError):
            raise error.cause from error
        raise
    return outcome


def run_stage(work: Workspace, name: StageName, progress: Progress) -> None:
    """Run a stage, unless it is done. Raises `ConfigError` if one before it is not."""
    step = work.steps[name]
    if step.done:
        progress.skipped(name)
        return
    if missing := work.unfinished(before=name):
        raise ConfigError(f"stage {name} needs {', '.join(missing)} first; run those, or `taskspec retrain`")
    began = time.monotonic()
    _RUN[name](work, progress)
    step.finish(time.monotonic() - began)


def _outcome(work: Workspace, stages: Sequence[StageName], seconds: dict[str, float]) -> Outcome:
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
