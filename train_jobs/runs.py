"""Which drafts a retraining fits: one per task and seed, and the controls beside them.

Enters: the `align` section and the tasks of all prompts. Leaves: runs, each by its name, with the traces it learns from
and those that tell it when to stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from core.alignment import Recipe
from train_jobs.config import Align
from train_jobs.partition import Assigned

MIXED, FULL = "mixed", "full"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One draft to fit. `train` and `stop` are numbers of traces of those parts; `rank` None frees all weights.

    `source` is the directory of the traces to learn from, where they are not the retraining's own.
    """

    name: str
    seed: int
    rank: int | None
    steps: int
    patience: int
    train: list[int]
    stop: list[int]
    source: Path | None = None

    def recipe(self, align: Align) -> Recipe:
        """How `core.alignment` fits it."""
        return Recipe(
            rank=self.rank,
            learning_rate=align.learning_rate,
            steps=self.steps,
            budget=align.budget,
            evaluate_every=align.evaluate_every,
            patience=self.patience,
            seed=self.seed,
        )


def task_run(task: int, seed: int) -> str:
    """Name of the run of a task's adapter."""
    return f"task-{task}-seed-{seed}"


def control_run(kind: str, seed: int) -> str:
    """Name of the run of a control: `mixed` or `full`."""
    return f"{kind}-seed-{seed}"


def planned(align: Align, assigned: Assigned) -> list[Run]:
    """All runs, seed by seed, the longest first: what is begun last should not be what everybody waits for."""
    found = (sorted(_of_seed(align, assigned, seed), key=lambda run: -run.steps) for seed in align.seeds)
    return [run for of_seed in found for run in of_seed]


def of_task(labels: Sequence[int], task: int) -> list[int]:
    """Numbers of the traces with this label."""
    numbers: list[int] = np.flatnonzero(np.array(labels) == task).tolist()
    return numbers


def _of_seed(align: Align, assigned: Assigned, seed: int) -> Iterator[Run]:
    train, stop = assigned.labels("train"), assigned.labels("stop")
    learnt = [of_task(train, task)[: align.max_pairs] for task in range(assigned.partition.k)]
    mixed = Run(
        name=control_run(MIXED, seed),
        seed=seed,
        rank=align.rank,
        steps=align.steps * len(learnt),
        patience=align.patience,
        train=sorted(number for numbers in learnt for number in numbers),
        stop=list(range(len(stop))),
    )
    yield mixed
    if align.full_fine_tune:
        yield msgspec.structs.replace(mixed, name=control_run(FULL, seed), rank=None)
    if len(learnt) > 1:
        for task, numbers in enumerate(learnt):
            name, held_out = task_run(task, seed), of_task(stop, task)
            yield msgspec.structs.replace(mixed, name=name, steps=align.steps, train=numbers, stop=held_out)
