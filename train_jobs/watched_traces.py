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
from train_jobs.artefacts import read_json, write_json
from train_jobs.config import RetrainConfig
from train_jobs.models import target_tokenizer
from train_jobs.workers import resources

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
        kept = read_json(self._file, Reference)
        return kept if (kept.bundle, kept.since) == self._epoch else None

    def _new(self, shards: Sequence[Path], most: int) -> Reference | None:
        """None if there are not enough answers yet."""
        found = self._observations(shards, most)
        if len(answers := _joined(found)) < most:
            return None
        reference = Reference(*self._epoch, max(found), answers)
        write_json(self._file, reference)
        return reference

    def _observations(self, shards: Iterable[Path], most: int) -> dict[str, list[Observation]]:
        """Those of shards in this order, until there are enough answers."""
        unread, taken, answers = dict[str, list[Trace]](), list[str](), 0
        for shard in shards:
            if answers >= most:
                break
            if shard.name not in self._observed:
                unread[shard.name] = self._answers(shard)
            answers += len(unread[shard.name] if shard.name in unread else self._observed[shard.name])
            taken.append(shard.name)
        self._observe(unread)
        return {name: self._observed[name] for name in taken}

    def _answers(self, shard: Path) -> list[Trace]:
        """The answers in a shard that are of this epoch. Of several to one prompt only the first counts."""
        return [one for one in self._store.read(shard) if one.bundle == self._epoch.bundle and one.choice == 0]

    def _observe(self, unread: Mapping[str, Sequence[Trace]]) -> None:
        traces = [trace for shard in unread.values() for trace in shard]
        placed = iter(self._distances(traces) if traces else ())
        for name, shard in unread.items():
            self._observed[name] = [Observation.of(trace, next(placed)) for trace in shard]


def _joined(observed: Mapping[str, Sequence[Observation]]) -> list[Observation]:
    """In order of time, as the names of shards are."""
    return [one for name in sorted(observed) for one in observed[name]]


def freeze(traces: Path, to: Path) -> None:
    """Put the shards that are in `traces` now into the directory `to`, unless it exists.

    A retraining reads them there, so that it can be resumed after more have come and old ones were deleted. They stay
    marked as kept in memory, if they are.
    """
    if to.exists():
        return
    made = to.with_name(ASIDE + to.name)
    shutil.rmtree(made, ignore_errors=True)  # left by a killed process
    made.mkdir(parents=True)
    for shard in TraceStore(traces).shards():
        with suppress(FileNotFoundError):  # deleted by the service meanwhile
            _link(shard, made / shard.name)
    if marked(traces):
        mark(made)
    made.rename(to)


def _link(file: Path, to: Path) -> None:
    try:
        to.hardlink_to(file)
    except FileNotFoundError:
        raise
    except OSError:  # on another file system, or on one without links
        shutil.copy2(file, to)


def distances_on_ray(config: RetrainConfig, centroids: Path | None) -> Distances:
    """Distances as a worker of the partition stage finds them; None where the centroids are of another embedder."""
    known = None if centroids is None else TaskCentroids.load(centroids)
    if known is None or known.embedder != config.partition.embedder:
        return lambda traces: [None] * len(traces)
    worker = config.partition.worker
    found: Any = ray.remote(_distances).options(**resources(worker))

    def measured(traces: Sequence[Trace]) -> Sequence[float | None]:
        asked = config.work / _ASKED  # and not an object of Ray's, which may go to a disk
        try:
            replace(asked, parquet_of(traces))
            placed: list[float | None] = ray.get(found.remote(config, known, asked))
        finally:
            asked.unlink(missing_ok=True)
        return placed

    return measured


def _distances(config: RetrainConfig, centroids: TaskCentroids, asked: Path) -> list[float]:
    tokenizer, prompts = target_tokenizer(config), [trace.prompt_ids for trace in traces_of(asked.read_bytes())]
    encode = sentence_encoder(centroids.embedder, "cuda" if config.partition.worker.num_gpus else "cpu")
    return distances(centroids, encode([tokenizer.prompt_text(prompt) for prompt in prompts]))
