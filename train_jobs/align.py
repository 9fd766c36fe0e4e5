"""Third stage: drafts fitted to the target, one Ray Train run each, as many at once as the cluster has room for.

Enters: the collected traces and their tasks. Leaves: per run a PEFT adapter (or a whole draft), and how its held-out
acceptance went. The checkpoint a run goes on from is `core.alignment`'s own file, because it resumes to the same bytes;
Ray Train restarts the worker where one is lost, and is told the figures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import ray

from core.acceptance import Terms
from core.alignment import Alignment, align
from core.alignment import Progress as Step
from core.durable import replace
from core.family import locate
from core.id_map import same_id_map
from core.model.config import ModelConfig
from core.model.loader import resolve
from train_jobs import collect, partition
from train_jobs.collected import Collected
from train_jobs.config import RetrainConfig
from train_jobs.findings import RunTime
from train_jobs.partition import Assigned
from train_jobs.progress import Progress, Report
from train_jobs.runs import Run, planned
from train_jobs.units import Unit, fingerprint
from train_jobs.workers import at_most

_CHECKPOINT, _DRAFT, _CURVE = "checkpoint.pt", "draft", "curve.json"
_RESTARTS = 2  # of a lost worker, within one run


def unit(config: RetrainConfig) -> Unit:
    """Where it is written, and what it depends on."""
    section = config.align.model_dump(mode="json", exclude={"worker"})
    terms = config.evaluate.num_speculative_tokens  # held-out acceptance is told for so many
    draft = fingerprint(resolve(locate(config.draft)))
    return Unit(config.work / "align", section, terms, draft, partition.unit(config).key)


def run(config: RetrainConfig, progress: Progress) -> None:
    """Fit everything that is not fitted yet."""
    directory = unit(config).start()
    plan = planned(config.align, Assigned(partition.unit(config).directory))
    fit_all(config, directory, plan, "align", progress)


def fit_all(config: RetrainConfig, directory: Path, plan: Sequence[Run], stage: str, progress: Progress) -> None:
    """Fit all runs of a plan, each in its own directory; those that are whole are left alone."""
    missing = [run for run in plan if not (directory / run.name / _CURVE).exists()]
    with progress.stage(stage, len(missing), sum(run.steps for run in missing)) as report:
        for _ in _at_once(config, directory, missing, report):
            pass


def fitted(directory: Path, run: str) -> Path:
    """The adapter or draft that a run left."""
    return directory / run / _DRAFT


def curve(directory: Path, run: str) -> RunTime:
    """When a run worked, and how its held-out acceptance went."""
    return msgspec.json.decode((directory / run / _CURVE).read_bytes(), type=RunTime)


def terms(config: RetrainConfig) -> Terms:
    """Under what drafts are judged."""
    target = locate(config.target.model)
    num_valid = same_id_map(target, locate(config.draft))
    return Terms(config.evaluate.num_speculative_tokens, num_valid, ModelConfig.load(resolve(target)).context)


def _at_once(config: RetrainConfig, directory: Path, missing: Sequence[Run], report: Report) -> Iterator[None]:
    """Keep as many Ray Train runs going as the cluster can hold; where others use it, Train queues."""
    fit: Any = ray.remote(num_cpus=0, max_retries=0)(_fit)
    waiting, running, room = list(missing), list[Any](), at_most(config.align.worker)
    try:
        while waiting or running:
            while waiting and len(running) < room:
                running.append(fit.remote(config, directory, waiting.pop(0), report))
            [over], running = ray.wait(running)
            ray.get(over)
            yield
    finally:
        for task in running:
            ray.cancel(task, force=True)


def _fit(config: RetrainConfig, where: Path, run: Run, report: Report) -> None:
    """One Ray Train run; in a process of its own, because a driver can `fit` only one at a time."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    directory = where.resolve() / run.name
    directory.mkdir(exist_ok=True)
    worker = config.align.worker
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={
            "config": config,
            "directory": directory,
            "run": run,
            "report": report,
            "began": time.time(),
        },
        scaling_config=ScalingConfig(
            num_workers=1,
            use_gpu=worker.num_gpus > 0,
            resources_per_worker={"CPU": worker.num_cpus} | ({"GPU": worker.num_gpus} if worker.num_gpus else {}),
        ),
        run_config=RunConfig(
            name=run.name,
            storage_path=str(directory / "ray"),
            failure_config=FailureConfig(max_failures=_RESTARTS),
        ),
    )
    trainer.fit()


def train_loop(settings: dict[str, Any]) -> None:
    """What the worker of a run does."""
    import torch
    import transformers

    config, run, report = settings["config"], settings["run"], settings["report"]
    directory: Path = settings["directory"]
    torch.set_num_threads(config.align.worker.num_cpus)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    collected = Collected(collect.unit(config).directory)
    stop = collected.traces("stop")
    found = align(
        locate(config.draft),
        (Collected(run.source) if run.source else collected).distilled(run.train),
        [stop[number] for number in run.stop],
        terms(config),
        run.recipe(config.align),
        checkpoint=directory / _CHECKPOINT,
        destination=directory / _DRAFT,
        on_step=_Teller(run.name, report),
        device=config.align.device,
    )
    _keep(directory, run, settings["began"], found)
    report(run.name, run.steps, run.steps, "")


class _Teller:
    """Passes the steps of a run on, to the view and to Ray Train."""

    def __init__(self, name: str, report: Report) -> None:
        self._name = name
        self._report = report
        self._acceptance = ""

    def __call__(self, step: Step) -> None:
        if step.acceptance is not None:
            self._acceptance = f"  acceptance {step.acceptance:.3f}"
            ray.train.report({"step": step.step, "loss": step.loss, "acceptance": step.acceptance})
        self._report(self._name, step.step, step.steps, f"loss {step.loss:.2f}{self._acceptance}")


def _keep(directory: Path, run: Run, began: float, found: Alignment) -> None:
    steps, acceptance = [list(column) for column in zip(*found.curve, strict=True)]
    told = RunTime(run.name, began, time.time(), steps, acceptance)
    replace(directory / _CURVE, msgspec.json.encode(told))
    (directory / _CHECKPOINT).unlink(missing_ok=True)
