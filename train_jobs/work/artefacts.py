"""The files that stages leave for each other: one class per kind, which reads and writes it.

`train_jobs.work.workspace` knows in which directory each of them lies.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from safetensors.numpy import load_file, save_file

from core.atomic_files import replace
from core.bundle.blobs import store_blob
from core.bundle.manifest import Evidence
from core.bundle.store import Winner
from core.distill.dataset import DistillationSet
from core.draft_key import GENERAL
from core.replay.replay import AcceptanceCounts
from core.tasks.clustering import TaskPartition
from core.tasks.embedding import Matrix
from core.traces.store import Trace, traces_of
from train_jobs.work.findings import RunTime

Split = Literal["train", "stop", "promotion", "test"]
SPLITS: tuple[Split, ...] = ("train", "stop", "promotion", "test")
HELD_OUT = SPLITS[1:]  # one for early stopping, one for promotion, one for the reported figures
SplitCounts = dict[Split, dict[int, AcceptanceCounts]]  # by number of the trace in its split
CHANGES, ROUTING, WINNERS, LIVE_DRAFTS = "changes.json", "routing.json", "winners.json", "live.json"
COSTS = "costs.json"
_BASES, _RANKS = "bases.json", "ranks.json"

_Value = TypeVar("_Value")


def write_json(file: Path, value: Any) -> None:
    replace(file, msgspec.json.encode(value, enc_hook=str))


def read_json(file: Path, kind: type[_Value]) -> _Value:
    return msgspec.json.decode(file.read_bytes(), type=kind, dec_hook=lambda kind, text: kind(text))


class Collected:
    """Traces by split in Parquet shards; beside each shard of `train`, the target's log-probabilities."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def traces(self, split: Split) -> list[Trace]:
        """All traces of a split. Their order numbers them everywhere else."""
        return [trace for file in self._shards(split) for trace in traces_of(file.read_bytes())]

    def dataset(self, numbers: Sequence[int]) -> DistillationSet:
        """The distillation set of these `train` traces, in this order."""
        sets, first = [], 0
        ascending = sorted(numbers)
        for file, count in zip(self._shards("train"), self._sizes, strict=True):
            here = [number - first for number in ascending if first <= number < first + count]
            if here:
                sets.append(DistillationSet.load(file.with_suffix(".safetensors")).take(here))
            first += count
        place = {number: index for index, number in enumerate(ascending)}
        return DistillationSet.join(sets).take([place[number] for number in numbers])

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(traces_of(file.read_bytes())) for file in self._shards("train")]

    def _shards(self, split: Split) -> list[Path]:
        return sorted(self.directory.glob(f"{split}-*.parquet"))


def shard_names(split: Split, count: int, size: int) -> Iterator[tuple[str, slice]]:
    """Name of each shard for `count` traces of a split, and the slice of the traces that goes into it."""
    for number, start in enumerate(range(0, count, size)):
        yield f"{split}-{number:04d}", slice(start, start + size)


class TaskAssignment:
    """The task partition, and the task of every trace by its index among `names`."""

    def __init__(self, directory: Path) -> None:
        self.partition = TaskPartition.load(directory)
        self._labels = read_json(directory / "tasks.json", dict[Split, list[int]])

    @staticmethod
    def save(directory: Path, partition: TaskPartition, labels: dict[Split, list[int]]) -> None:
        partition.save(directory)
        write_json(directory / "tasks.json", labels)

    @property
    def names(self) -> tuple[str, ...]:
        return self.partition.names

    @property
    def routed(self) -> tuple[str, ...]:
        """The tasks that may get a slot of their own: none if all prompts are one task."""
        return self.names if len(self.names) > 1 else ()

    def labels(self, split: Split) -> list[int]:
        """Task of each trace of a split, in order."""
        return self._labels[split]

    def numbers(self, split: Split, task: int | None) -> list[int]:
        """Numbers of the traces of a task in a split; None stands for all tasks."""
        labels = self._labels[split]
        return list(range(len(labels))) if task is None else of_task(labels, task)


def of_task(labels: Sequence[int], task: int) -> list[int]:
    """Numbers of the traces with this label."""
    numbers: list[int] = np.flatnonzero(np.array(labels) == task).tolist()
    return numbers


def save_embeddings(directory: Path, embeddings: dict[Split, Matrix]) -> None:
    save_file({str(split): matrix for split, matrix in embeddings.items()}, directory / "embeddings.safetensors")


def load_embeddings(directory: Path) -> dict[Split, Matrix]:
    embeddings = load_file(directory / "embeddings.safetensors")
    return {split: embeddings[split] for split in SPLITS}


class LiveDrafts(msgspec.Struct, frozen=True):
    """What a retraining starts from and is compared with: the drafts of the bundle that was live when it began.

    `slots` are the directories by slot that serve the tasks found now, `adapters` those of them that are for `base`,
    the draft of its general slot. All are empty if no bundle was live, or one for other models.
    """

    version: str | None = None
    base: Path | None = None
    slots: dict[str, Path] = {}
    adapters: dict[str, Path] = {}
    evidence: dict[str, Evidence] = {}


class FittedDrafts:
    """Results of training runs: the draft of each run, and a directory with its learning curve.

    Drafts lie side by side. A base lies there once more, under the digest of its content; its adapters name it so.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def draft(self, run: str) -> Path:
        """A PEFT adapter, or a whole model after a full fine-tune."""
        return self.directory / "drafts" / run

    def done(self, run: str) -> bool:
        return self._curve(run).exists()

    def curve(self, run: str) -> RunTime:
        """Start, end and held-out acceptance of a run."""
        return read_json(self._curve(run), RunTime)

    def keep_curve(self, curve: RunTime) -> None:
        """Write the curve, which marks the run as done."""
        file = self._curve(curve.name)
        file.parent.mkdir(exist_ok=True)
        write_json(file, curve)

    def base(self, seed: int) -> Path:
        """The base that adapters of a seed are for, under its digest."""
        return self.directory / "drafts" / self._bases[seed]

    def keep_bases(self, runs: Mapping[int, Path]) -> None:
        """Name the base of each seed by its digest."""
        drafts = self.directory / "drafts"
        drafts.mkdir(parents=True, exist_ok=True)
        write_json(self.directory / _BASES, {seed: store_blob(drafts, base).digest for seed, base in runs.items()})

    def ranks(self) -> dict[str, int]:
        """The rank chosen for each task that ranks were tried for; empty before."""
        file = self.directory / _RANKS
        return read_json(file, dict[str, int]) if file.exists() else {}

    def keep_ranks(self, ranks: Mapping[str, int]) -> None:
        write_json(self.directory / _RANKS, ranks)

    def adopt(self, run: str, name: str) -> None:
        """Take the result of `run` as that of the run `name`."""
        shutil.copytree(self.draft(run), self.draft(name), dirs_exist_ok=True)
        self.keep_curve(msgspec.structs.replace(self.curve(run), name=name))

    @cached_property
    def _bases(self) -> dict[int, str]:
        return read_json(self.directory / _BASES, dict[int, str])

    def _curve(self, run: str) -> Path:
        return self.directory / run / "curve.json"


class Scores:
    """Acceptance counts of drafts on held-out traces, with their times, a file per draft."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._read = cache(lambda name: read_json(self._file(name), SplitCounts))

    def has(self, name: str) -> bool:
        return self._file(name).exists()

    def of(self, name: str, split: Split, numbers: Sequence[int]) -> list[AcceptanceCounts]:
        """Counts of a draft on these traces, in order."""
        counts = self._read(name)[split]
        return [counts[number] for number in numbers]

    def keep(self, name: str, counts: SplitCounts) -> None:
        write_json(self._file(name), counts)

    def _file(self, name: str) -> Path:
        return self.directory / f"{name}.json"


class Winners(msgspec.Struct, frozen=True, kw_only=True):
    """The promoted draft of every task, and of the general slot.

    See `core.bundle.manifest.Manifest` for `acceptance` and `evidence`.
    """

    tasks: dict[str, Winner]
    general: Winner
    acceptance: dict[str, dict[str, float]] = {}
    evidence: dict[str, Evidence] = {}

    @property
    def one_draft(self) -> bool:
        """True if the same draft won everywhere, so that one pool serves all tasks."""
        return all(winner.directory == self.general.directory for winner in self.tasks.values())

    @property
    def slots(self) -> dict[str, Winner]:
        """The slots of the bundle."""
        return {GENERAL: self.general} | ({} if self.one_draft else self.tasks)

    def owner(self, slot: str) -> str:
        """The slot whose candidate serves this one: itself, or `general` where the best single draft does."""
        winner = self.slots.get(slot)
        return slot if winner is not None and winner.directory != self.general.directory else GENERAL
