"""Stage 3, align: drafts trained to imitate the target, one Ray Train run each, as many at once as fit on the cluster.

First the draft learns from the prompts of all tasks; the result is the base. Then one adapter of the base is trained
per task, and two controls from the same base in as many steps: one adapter for all tasks, and the base, trained on.
An interrupted run resumes from the checkpoint of `core.distill.alignment` and ends in the same bytes. Ray Train
restarts lost workers and receives the metrics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import ray

from core.distill.alignment import Alignment, TrainingStep, align
from core.draft_key import GENERAL
from core.model.loader import adapted_model, is_adapter
from train_jobs.cluster.progress import Progress, ReportProgress
from train_jobs.cluster.workers import at_most
from train_jobs.config import RetrainConfig
from train_jobs.drafts.candidates import TASK, draft_name, trial_name
from train_jobs.drafts.training_runs import TrainingRun, base_runs, rank_trials, specialised_runs
from train_jobs.work.artefacts import LIVE_DRAFTS, Collected, FittedDrafts, LiveDrafts, write_json
from train_jobs.work.cached_step import fingerprint, settings_of
from train_jobs.work.findings import RunTime
from train_jobs.work.models import live_bundle, model_directory, replay_terms
from train_jobs.work.workspace import Workspace

NEEDS = ("partition",)
_RESTARTS = 2  # of a lost worker, within one run


def inputs(config: RetrainConfig) -> list[object]:
    return [settings_of(config.align), fingerprint(model_directory(config.draft))]


def run(work: Workspace, progress: Progress) -> None:
    """Train the bases, then from them the controls and the adapters of all tasks."""
    directory, drafts = work.steps["align"].start(), work.drafts()
    if not (directory / LIVE_DRAFTS).exists():  # looked up once, so that a resumed run goes on from the same drafts
        write_json(directory / LIVE_DRAFTS, live_drafts(work))
    bases = base_runs(work)
    fit_all(work, drafts, bases, "align: base", progress)
    drafts.keep_bases({run.seed: drafts.draft(run.name) for run in bases})
    trials = rank_trials(work)
    fit_all(work, drafts, trials, "align: ranks", progress)
    _choose_ranks(work, drafts)
    fit_all(work, drafts, specialised_runs(work), "align", progress)


def live_drafts(work: Workspace) -> LiveDrafts:
    """What the live bundle serves the tasks found now with; the general slot serves tasks unknown to it."""
    bundle, tasks = live_bundle(work.config), work.tasks()
    if bundle is None:
        return LiveDrafts()
    manifest = bundle.manifest
    serving = {slot: slot if slot in manifest.slots else GENERAL for slot in (*tasks.names, GENERAL)}
    directories = {slot: bundle.directory(name) for slot, name in serving.items()}
    slots = {slot: directory for slot, directory in directories.items() if directory is not None}
    general = slots.get(GENERAL)
    fitted = work.config.align.base_steps != 0  # or the draft is the base, which adapters call no directory
    base = None if general is None or is_adapter(general) or not fitted else general
    adapters = {
        slot: directory
        for slot, directory in slots.items()
        if is_adapter(directory) and adapted_model(directory, "") == (str(base) if fitted else "")
    }
    evidence = {} if manifest.costs is None else manifest.evidence  # earlier versions knew gains in acceptance alone
    return LiveDrafts(manifest.version, base, slots, adapters, evidence)


def _choose_ranks(work: Workspace, drafts: FittedDrafts) -> None:
    """Per task the rank whose adapter accepts most on the stop set, the smallest of equals, which is adopted."""
    seed, ranks, tasks = work.config.align.seeds[0], work.config.align.ranks, work.tasks()
    chosen = dict[str, int]()
    for task, slot in enumerate(tasks.routed):
        name = draft_name(TASK, slot, task, seed)
        tried = [rank for rank in ranks if drafts.done(trial_name(name, rank))]
        if tried:
            chosen[slot] = max(tried, key=lambda rank: (max(drafts.curve(trial_name(name, rank)).acceptance), -rank))
            drafts.adopt(trial_name(name, chosen[slot]), name)
    drafts.keep_ranks(chosen)


def fit_all(work: Workspace, drafts: FittedDrafts, plan: Sequence[TrainingRun], stage: str, progress: Progress) -> None:
    """Do the runs of a plan that `drafts` has no result of."""
    missing = [run for run in plan if not drafts.done(run.name)]
    with progress.stage(stage, len(missing), sum(run.steps for run in missing)) as report:
        for _ in _at_once(work, drafts, missing, report):
            pass


def _at_once(
    work: Workspace, drafts: FittedDrafts, missing: Sequence[TrainingRun], report: ReportProgress
) -> Iterator[None]:
    """Keep as many Ray Train runs going as the cluster can hold; Train queues them while others use the cluster."""
    fit: Any = ray.remote(num_cpus=0, max_retries=0)(_fit)
    waiting, running, room = list(missing), list[Any](), at_most(work.config.align.worker)
    try:
        while waiting or running:
            while waiting and len(running) < room:
                running.append(fit.remote(work, drafts, waiting.pop(0), report))
            [over], running = ray.wait(running)
            ray.get(over)
            yield
    finally:
        for task in running:
            ray.cancel(task, force=True)


def _fit(work: Workspace, drafts: FittedDrafts, run: TrainingRun, report: ReportProgress) -> None:
    """One Ray Train run, in a process of its own because a driver can `fit` only one at a time."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from train_jobs.cluster.ray_private import LoneWorker

    directory = drafts.directory / run.name
    directory.mkdir(exist_ok=True)
    worker = work.config.align.worker
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"work": work, "drafts": drafts, "run": run, "report": report, "began": time.time()},
        torch_config=LoneWorker(),
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
    """The worker of one run: train a draft, keep it and its learning curve."""
    import torch
    import transformers

    work, drafts, run, report = (settings[name] for name in ("work", "drafts", "run", "report"))
    config, checkpoint = work.config, drafts.directory / run.name / "checkpoint.pt"
    torch.set_num_threads(config.align.worker.num_cpus)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    stop = work.traces("stop")
    alignment = align(
        run.draft,
        Collected(run.source).dataset(run.train),
        [stop[number] for number in run.stop],
        replay_terms(config),
        run.recipe(config.align),
        checkpoint=checkpoint,
        destination=drafts.draft(run.name),
        on_step=_StepReporter(run.name, report),
        device=config.align.device,
        adapter=run.adapter,
        target=model_directory(config.target.model),
    )
    drafts.keep_curve(_run_time(run.name, settings["began"], alignment))
    checkpoint.unlink(missing_ok=True)
    report(run.name, run.steps, run.steps, "")


class _StepReporter:
    """Reports the steps of a run to the progress view and to Ray Train."""

    def __init__(self, name: str, report: ReportProgress) -> None:
        self._name = name
        self._report = report
        self._acceptance = ""

    def __call__(self, step: TrainingStep) -> None:
        if step.acceptance is not None:
            self._acceptance = f"  acceptance {step.acceptance:.3f}"
            ray.train.report({"step": step.step, "loss": step.loss, "acceptance": step.acceptance})
        self._report(self._name, step.step, step.steps, f"loss {step.loss:.2f}{self._acceptance}")


def _run_time(name: str, began: float, alignment: Alignment) -> RunTime:
    steps, acceptance = [list(column) for column in zip(*alignment.curve, strict=True)]
    return RunTime(name, began, time.time(), steps, acceptance)
