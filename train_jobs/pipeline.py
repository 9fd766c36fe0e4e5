"""Runs the stages of a retraining in their order, each once: what is done for the same inputs is not done again.

Enters: a configuration, a view, the Ray this process is connected to. Leaves: a live bundle and a report of it.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from core.errors import ConfigError
from train_jobs import align, collect, evaluate, partition, publish, routing, study
from train_jobs.config import RetrainConfig
from train_jobs.progress import Progress
from train_jobs.report.page import write_report
from train_jobs.summary import Summary
from train_jobs.units import Unit


class _Stage(NamedTuple):
    unit: Callable[[RetrainConfig], Unit]
    run: Callable[[RetrainConfig, Progress], None]


def _report_unit(config: RetrainConfig) -> Unit:
    return Unit(config.work / "report", publish.unit(config).key, study.unit(config).key)


def _report(config: RetrainConfig, progress: Progress) -> None:
    with progress.stage("report", 1) as report:
        seconds = {name: stage.unit(config).seconds for name, stage in _STAGES.items() if name != "report"}
        write_report(Summary(config).findings(seconds), _report_unit(config).start())
        report("page", 1, 1, "")


_STAGES = {
    "collect": _Stage(collect.unit, collect.run),
    "partition": _Stage(partition.unit, partition.run),
    "align": _Stage(align.unit, align.run),
    "router": _Stage(routing.unit, routing.run),
    "evaluate": _Stage(evaluate.unit, evaluate.run),
    "publish": _Stage(publish.unit, publish.run),
    "study": _Stage(study.unit, study.run),
    "report": _Stage(_report_unit, _report),
}
STAGES: tuple[str, ...] = tuple(_STAGES)


def retrain(config: RetrainConfig, progress: Progress, stages: Sequence[str] = STAGES) -> Path:
    """Run these stages; the path of the report's page.

    Raises `ConfigError` where a stage before them is not done, where another retraining works in the same directory,
    or for what a person can mend.
    """
    config = config.anchored()
    with _alone(config.work):
        for name in stages:
            unit = _STAGES[name].unit(config)
            if unit.done:
                progress.skipped(name)
                continue
            _check_order(config, name)
            began = time.monotonic()
            _STAGES[name].run(config, progress)
            unit.finish(time.monotonic() - began)
    return _report_unit(config).directory / "report.html"


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    work.mkdir(parents=True, exist_ok=True)
    with (work / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lets go of it however the process ends
        except BlockingIOError as error:
            raise ConfigError(f"another retraining works in {work}; wait for it, or give another --work") from error
        yield


def _check_order(config: RetrainConfig, name: str) -> None:
    before = STAGES[: STAGES.index(name)]
    if missing := [other for other in before if not _STAGES[other].unit(config).done]:
        raise ConfigError(f"stage {name} needs {', '.join(missing)} first; run those, or `taskspec retrain`")
