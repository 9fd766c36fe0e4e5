"""What `taskspec retrain --watch` reads of a trace directory: the first answers under a bundle, and the last ones.

Both are whole shards, so that no answer is in both. The first ones are kept in a file, because a service deletes its
oldest traces; it holds no tokens of theirs. A shard is read, and its prompts embedded, once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import ray

from core.atomic_files import ASIDE, replace
from core.tasks.drift import Observation, distances
from core.tasks.embedding import sentence_encoder
from core.tasks.identity import TaskCentroids
from core.traces.memory_files import mark, marked
from core.traces.store import Trace, TraceStore, parquet_of, traces_of, written_at
from train_jobs.cluster.workers import resources
from train_jobs.config import RetrainConfig
from train_jobs.work.artefacts import read_json, write_json
from train_jobs.work.models import target_tokenizer

_ASKED = ".asked"  # prompts whose distances are being measured
Distances = Callable[[Sequence[Trace]], Sequence[float | None]]  # of prompts to the nearest task


class Epoch(NamedTuple):
    """Answers under one bundle, None for no bundle, that were written after a moment in Unix time."""

    bundle: str | None
    since: float


class Reference(msgspec.Struct, frozen=True):
    """The first answers of an epoch, and the name of the last shard that they are from."""

    bundle: str | None
    since: float
    last: str
    answers: list[Observation]


class Compared(NamedTuple):
    """The two sides; `recent` is empty as long as the reference has too few answers."""

    reference: list[Observation]
    recent: list[Observation]


class WatchedTraces:
    """The answers of an epoch in a trace directory. The reference is kept in `file`."""

    def __init__(self, directory: Path, file: Path, epoch: Epoch, distances: Distances) -> None:
        self._store = TraceStore(directory)
        self._file = file
        self._epoch = epoch
        self._distances = distances
        self._observed: dict[str, list[Observation]] = {}  # by shard

    def compared(self, first: int, last: int, after: float) -> Compared:
        """The first answers and the last ones, of which those count that were written `after` this Unix time.

        `first` and `last` are the numbers of each; there are a little more, as shards are taken whole.
        """
        shards = [shard for shard in self._store.shards() if written_at(shard) > self._epoch.since]
        reference = self._kept() or self._new(shards, first)
        if reference is None:
            return Compared(_joined(self._observed), [])
        later = [shard for shard in shards if shard.name > reference.last and written_at(shard) > after]
        self._observed = self._observations(reversed(later), last)  # earlier ones are needed no more
        return Compared(reference.answers, _joined(self._observed))

    def _kept(self) -> Reference | None:
        if not self._file.exists():
            return None
        reference = read_json(self._file, Reference)
        return reference if (reference.bundle, reference.since) == self._epoch else None

    def _new(self, shards: Sequence[Path], limit: int) -> Reference | None:
        """None if there are not enough answers yet."""
        observed = self._observations(shards, limit)
        if len(answers := _joined(observed)) < limit:
            return None
        reference = Reference(*self._epoch, max(observed), answers)
        write_json(self._file, reference)
        return reference

    def _observations(self, shards: Iterable[Path], limit: int) -> dict[str, list[Observation]]:
        """Those of shards in this order, until there are enough answers."""
        unread, names, answers = dict[str, list[Trace]](), list[str](), 0
        for shard in shards:
            if answers >= limit:
                break
            if shard.name not in self._observed:
                unread[shard.name] = self._answers(shard)
            answers += len(unread[shard.name] if shard.name in unread else self._observed[shard.name])
            names.append(shard.name)
        self._observe(unread)
        return {name: self._observed[name] for name in names}

    def _answers(self, shard: Path) -> list[Trace]:
        """The answers in a shard that are of this epoch. Of several to one prompt only the first counts."""
        return [trace for trace in self._store.read(shard) if trace.bundle == self._epoch.bundle and trace.choice == 0]

    def _observe(self, unread: Mapping[str, Sequence[Trace]]) -> None:
        traces = [trace for shard in unread.values() for trace in shard]
        placed = iter(self._distances(traces) if traces else ())
        for name, shard in unread.items():
            self._observed[name] = [Observation.of(trace, next(placed)) for trace in shard]


def _joined(observed: Mapping[str, Sequence[Observation]]) -> list[Observation]:
    """In order of time, as the names of shards are."""
    return [observation for name in sorted(observed) for observation in observed[name]]


def freeze(traces: Path, to: Path) -> None:
    """Put the shards that are in `traces` now into the directory `to`, unless it exists.

    A retraining reads them there, so that it can be resumed after more have come and old ones were deleted. They stay
    marked as kept in memory, if they are.
    """
    if to.exists():
        return
    aside = to.with_name(ASIDE + to.name)
    shutil.rmtree(aside, ignore_errors=True)  # left by a killed process
    aside.mkdir(parents=True)
    for shard in TraceStore(traces).shards():
        with suppress(FileNotFoundError):  # deleted by the service meanwhile
            _link(shard, aside / shard.name)
    if marked(traces):
        mark(aside)
    aside.rename(to)


def _link(file: Path, to: Path) -> None:
    try:
        to.hardlink_to(file)
    except FileNotFoundError:
        raise
    except OSError:  # on another file system, or on one without links
        shutil.copy2(file, to)


def distances_on_ray(config: RetrainConfig, centroids: Path | None) -> Distances:
    """Distances as a worker of the partition stage finds them; None where the centroids are of another embedder."""
    saved = None if centroids is None else TaskCentroids.load(centroids)
    if saved is None or saved.embedder != config.partition.embedder:
        return lambda traces: [None] * len(traces)
    worker = config.partition.worker
    measure: Any = ray.remote(_distances).options(**resources(worker))

    def measured(traces: Sequence[Trace]) -> Sequence[float | None]:
        file = config.work / _ASKED  # and not an object of Ray's, which may go to a disk
        try:
            replace(file, parquet_of(traces))
            placed: list[float | None] = ray.get(measure.remote(config, saved, file))
        finally:
            file.unlink(missing_ok=True)
        return placed

    return measured


def _distances(config: RetrainConfig, centroids: TaskCentroids, file: Path) -> list[float]:
    tokenizer, prompts = target_tokenizer(config), [trace.prompt_ids for trace in traces_of(file.read_bytes())]
    encode = sentence_encoder(centroids.embedder, "cuda" if config.partition.worker.num_gpus else "cpu")
    return distances(centroids, encode([tokenizer.prompt_text(prompt) for prompt in prompts]))
