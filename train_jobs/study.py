"""Seventh stage, for the report only: how acceptance goes with the number of answers learnt from, and of tasks.

Enters: the `studies` section. Leaves: points of both curves. Every run of the first learns as long as every other; all
runs of one number of tasks learn as long together as those of any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from core.acceptance import total
from core.durable import replace
from core.family import locate
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.partition import KScore, find_tasks
from core.tokenizer import load_tokenizer
from train_jobs import align, collect, partition
from train_jobs.collected import Collected, Part
from train_jobs.config import RetrainConfig
from train_jobs.findings import KPoint, PairsPoint
from train_jobs.partition import Assigned, assign
from train_jobs.progress import Progress
from train_jobs.runs import Run, of_task
from train_jobs.scores import Scores, Scoring, score_all
from train_jobs.sources import generated, unanswered
from train_jobs.units import Unit

_CURVES = "curves.json"


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """Both curves; without studies the second tells how well each number of tasks fits."""

    pairs: list[PairsPoint]
    ks: list[KPoint]


class _Fit(NamedTuple):
    """A number of tasks, and which of them every prompt would have."""

    k: int
    tasks: dict[Part, list[int]]


def unit(config: RetrainConfig) -> Unit:
    """Where it is written, and what it depends on."""
    return Unit(config.work / "study", config.studies.model_dump(mode="json"), align.unit(config).key)


def run(config: RetrainConfig, progress: Progress) -> None:
    """Fit and score what the section asks for."""
    directory = unit(config).start()
    assigned = Assigned(partition.unit(config).directory)
    fits = _fits(config)
    pairs, by_k = _pairs(config, directory, progress), [run for fit in fits for run in _of_k(config, fit)]
    align.fit_all(config, directory, [*pairs, *by_k], "study: runs", progress)
    scores = score_all(
        config,
        directory,
        [_test(directory, fit, task) for fit in fits for task in range(fit.k)],
        "study: scores",
        progress,
    )
    curves = Curves(
        pairs=[_pairs_point(directory, run) for run in pairs],
        ks=_k_points(assigned.partition.scores, {fit.k: _acceptance(fit, scores) for fit in fits}),
    )
    replace(directory / _CURVES, msgspec.json.encode(curves))


def curves(config: RetrainConfig) -> Curves:
    """What the stage found."""
    return msgspec.json.decode((unit(config).directory / _CURVES).read_bytes(), type=Curves)


def _fits(config: RetrainConfig) -> list[_Fit]:
    if not config.studies.ks:
        return []
    texts, points = partition.prompt_texts(config), partition.embeddings(config)
    found = ((k, find_tasks(texts["train"], points["train"], k=k, max_k=2)) for k in config.studies.ks)
    return [_Fit(k, assign(tasks, texts, points)) for k, tasks in found]


def _pairs(config: RetrainConfig, directory: Path, progress: Progress) -> list[Run]:
    """Of one of the family's tasks; none ends early, for its end is compared with its best."""
    studies, source = config.studies, directory / "pairs"
    if not studies.pairs:
        return []
    source.mkdir(exist_ok=True)
    target = locate(config.target.model)
    prompts = generated([studies.pairs_task], max(studies.pairs), config.collect.seed, "train")
    context = ModelConfig.load(resolve(target)).context
    traces = list(unanswered(prompts, config.collect, load_tokenizer(target), context))
    collect.answer_all(config, source, {"train": traces}, "study: answers", progress)
    held_out = Collected(collect.unit(config).directory).traces("stop")
    stop = [number for number, trace in enumerate(held_out) if trace.task == studies.pairs_task]
    return [
        msgspec.structs.replace(_run(config, f"pairs-{count}", studies.steps, list(range(count)), stop), source=source)
        for count in studies.pairs
    ]


def _of_k(config: RetrainConfig, fit: _Fit) -> list[Run]:
    steps = max(1, config.studies.steps // fit.k)
    return [
        _run(config, _k_name(fit.k, task), steps, of_task(fit.tasks["train"], task), of_task(fit.tasks["stop"], task))
        for task in range(fit.k)
    ]


def _run(config: RetrainConfig, name: str, steps: int, train: list[int], stop: list[int]) -> Run:
    seed, rank = config.align.seeds[0], config.align.rank
    return Run(name=name, seed=seed, rank=rank, steps=steps, patience=steps, train=train, stop=stop)


def _k_name(k: int, task: int) -> str:
    return f"k-{k}-task-{task}"


def _test(directory: Path, fit: _Fit, task: int) -> Scoring:
    name = _k_name(fit.k, task)
    return Scoring(name, align.fitted(directory, name), {"test": of_task(fit.tasks["test"], task)})


def _acceptance(fit: _Fit, scores: Scores) -> float:
    counts = (scores.of(_k_name(fit.k, task), "test", of_task(fit.tasks["test"], task)) for task in range(fit.k))
    return total(count for found in counts for count in found).acceptance_rate


def _pairs_point(directory: Path, run: Run) -> PairsPoint:
    acceptance = align.curve(directory, run.name).acceptance
    return PairsPoint(len(run.train), max(acceptance), acceptance[-1])


def _k_points(fits: Sequence[KScore], acceptance: dict[int, float]) -> list[KPoint]:
    known = {fit.k: fit for fit in fits}
    return [_k_point(k, known.get(k), acceptance.get(k)) for k in sorted(known.keys() | acceptance.keys())]


def _k_point(k: int, fit: KScore | None, acceptance: float | None) -> KPoint:
    if fit is None:
        return KPoint(k, None, None, None, acceptance)
    return KPoint(k, fit.silhouette, fit.permuted_silhouette, fit.reappearance, acceptance)
