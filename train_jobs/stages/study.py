"""Stage 7, study: acceptance against the number of answers learned from, the number of tasks, and the loss.

These curves are for the report only. All runs for numbers of answers take equally many steps; the runs for one number
of tasks take as many together as those for any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from core.confidence_intervals import compare
from core.replay.replay import total
from core.tasks.clustering import KScore, find_tasks
from train_jobs.artefacts import CURVES, FittedDrafts, Scores, Split, StudyCurves, of_task, write_json
from train_jobs.findings import KPoint, LossPoint, PairsPoint
from train_jobs.models import context, target_tokenizer
from train_jobs.progress import Progress
from train_jobs.prompt_sources import generated, unanswered
from train_jobs.scoring import ScoringJob, score_all
from train_jobs.stages.align import fit_all
from train_jobs.stages.collect import answer_all
from train_jobs.stages.partition import assign, prompt_texts
from train_jobs.training_runs import TrainingRun, base_runs
from train_jobs.workspace import Workspace


class _Partition(NamedTuple):
    """A number of tasks, and the task of every prompt under it."""

    k: int
    labels: dict[Split, list[int]]


def run(work: Workspace, progress: Progress) -> None:
    """Train and score the drafts that the `studies` section lists."""
    directory = work.steps["study"].start()
    drafts, scores, partitions = FittedDrafts(directory), Scores(directory), _partitions(work)
    pairs = _pairs(work, directory, progress)
    by_k = [run for partition in partitions for run in _of_k(work, partition)]
    losses = _of_losses(work)
    if base_runs(work):
        drafts.keep_bases({work.config.align.seeds[0]: work.base(work.config.align.seeds[0])})
    fit_all(work, drafts, [*pairs, *by_k, *losses], "study: runs", progress)
    jobs = [_job(drafts, partition, task) for partition in partitions for task in range(partition.k)]
    jobs += [
        ScoringJob(run.name, drafts.draft(run.name), {"test": work.tasks().numbers("test", None)}) for run in losses
    ]
    score_all(work, scores, jobs, "study: scores", progress)
    acceptance = {partition.k: _acceptance(partition, scores) for partition in partitions}
    curves = StudyCurves(
        pairs=[_pairs_point(drafts, run) for run in pairs],
        ks=_k_points(work.tasks().partition.scores, acceptance),
        losses=_loss_points(work, scores),
    )
    write_json(directory / CURVES, curves)


def _partitions(work: Workspace) -> list[_Partition]:
    if not work.config.studies.ks:
        return []
    texts, embeddings = prompt_texts(work), work.embeddings()
    found = ((k, find_tasks(texts["train"], embeddings["train"], k=k, max_k=2)) for k in work.config.studies.ks)
    return [_Partition(k, assign(tasks, texts, embeddings)) for k, tasks in found]


def _pairs(work: Workspace, directory: Path, progress: Progress) -> list[TrainingRun]:
    """Runs for numbers of answers, on one of the family's tasks. None stops early: its last step is a figure too."""
    config, studies, source = work.config, work.config.studies, directory / "pairs"
    if not studies.pairs:
        return []
    source.mkdir(exist_ok=True)
    prompts = generated([studies.pairs_task], max(studies.pairs), config.collect.seed, "train")
    traces = unanswered(prompts, config.collect, target_tokenizer(config), context(config.target.model))
    answer_all(config, source, {"train": list(traces)}, "study: answers", progress)
    stop = [number for number, trace in enumerate(work.traces("stop")) if trace.task == studies.pairs_task]
    return [_run(work, f"pairs-{count}", studies.steps, source, list(range(count)), stop) for count in studies.pairs]


def _of_k(work: Workspace, partition: _Partition) -> list[TrainingRun]:
    steps, source = max(1, work.config.studies.steps // partition.k), work.collected().directory
    train, stop = partition.labels["train"], partition.labels["stop"]
    return [
        _run(work, _k_name(partition.k, task), steps, source, of_task(train, task), of_task(stop, task))
        for task in range(partition.k)
    ]


def _run(work: Workspace, name: str, steps: int, source: Path, train: list[int], stop: list[int]) -> TrainingRun:
    align = work.config.align
    return TrainingRun(
        name=name,
        seed=align.seeds[0],
        draft=str(work.base(align.seeds[0])),
        rank=align.ranks[-1],
        loss=align.loss,
        steps=steps,
        evaluate_every=align.evaluate_every,
        source=source,
        train=train,
        stop=stop,
    )


def _of_losses(work: Workspace) -> list[TrainingRun]:
    """Bases of every seed with each loss, in `steps` steps."""
    steps = work.config.studies.steps
    return [
        msgspec.structs.replace(run, name=_loss_name(loss, run.seed), loss=loss, steps=steps, evaluate_every=steps)
        for loss in work.config.studies.losses
        for run in base_runs(work)
    ]


def _loss_name(loss: str, seed: int) -> str:
    return f"loss-{loss}-seed-{seed}"


def _loss_points(work: Workspace, scores: Scores) -> list[LossPoint]:
    losses, seeds = work.config.studies.losses, work.config.align.seeds
    numbers = work.tasks().numbers("test", None)
    counts = {loss: [scores.of(_loss_name(loss, seed), "test", numbers) for seed in seeds] for loss in losses}
    flat = {loss: [count for of_seed in found for count in of_seed] for loss, found in counts.items()}
    prompts = [trace.prompt_ids for trace in work.traces("test")] * len(seeds)
    return [
        LossPoint(
            loss,
            [total(of_seed).acceptance_rate for of_seed in found],
            None if loss == losses[0] else compare(flat[loss], flat[losses[0]], prompts),
        )
        for loss, found in counts.items()
    ]


def _k_name(k: int, task: int) -> str:
    return f"k-{k}-task-{task}"


def _job(drafts: FittedDrafts, partition: _Partition, task: int) -> ScoringJob:
    name = _k_name(partition.k, task)
    return ScoringJob(name, drafts.draft(name), {"test": of_task(partition.labels["test"], task)})


def _acceptance(partition: _Partition, scores: Scores) -> float:
    """Test acceptance of all k adapters, each on the prompts of its own task."""
    labels = partition.labels["test"]
    counts = (scores.of(_k_name(partition.k, task), "test", of_task(labels, task)) for task in range(partition.k))
    return total(count for found in counts for count in found).acceptance_rate


def _pairs_point(drafts: FittedDrafts, run: TrainingRun) -> PairsPoint:
    acceptance = drafts.curve(run.name).acceptance
    return PairsPoint(len(run.train), max(acceptance), acceptance[-1], acceptance[0])


def _k_points(fits: Sequence[KScore], acceptance: dict[int, float]) -> list[KPoint]:
    known = {fit.k: fit for fit in fits}
    return [_k_point(k, known.get(k), acceptance.get(k)) for k in sorted(known.keys() | acceptance.keys())]


def _k_point(k: int, fit: KScore | None, acceptance: float | None) -> KPoint:
    if fit is None:
        return KPoint(k, None, None, None, acceptance)
    return KPoint(k, fit.silhouette, fit.permuted_silhouette, fit.reappearance, acceptance)
