"""The trace store: answers of a service, kept for training in Parquet shards, and the retention of old ones.

A shard's name holds its time of writing, its number of traces and the hash of its bytes; it appears by one rename. Any
number of processes may write to one directory and delete from it. Shards of earlier versions, which lack some columns,
can be read.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_type_hints

import msgspec
import pyarrow as pa
from pyarrow import parquet

from core.atomic_files import ASIDE, replace
from core.sampling.params import SamplingParams
from core.traces.record import Record

UNREADABLE = ".unreadable"  # suffix of a shard that was set aside
_SHARD = re.compile(r"(?P<at>\d{20})-(?P<rows>\d+)-(?P<digest>[0-9a-f]{16})\.parquet")
_ABANDONED = 3600.0  # seconds after which a temporary file counts as left by a killed process
_DAY = 86400.0
_AT_ONCE = 16  # traces converted without letting another thread run; with 500 tokens each that takes a millisecond
_log = logging.getLogger(__name__)

_COLUMNS: dict[object, pa.DataType] = {  # of sampling parameters, by type
    bool: pa.bool_(),
    int: pa.int64(),
    int | None: pa.int32(),
    float: pa.float64(),
    tuple[int, ...]: pa.list_(pa.int64()),
    tuple[str, ...]: pa.list_(pa.string()),
    dict[int, float]: pa.map_(pa.int64(), pa.float64()),
}
_SCHEMA = pa.schema(
    {
        "prompt_ids": pa.list_(pa.int32()),
        "output_ids": pa.list_(pa.int32()),
        "prompt_length": pa.int32(),
        "choice": pa.int32(),
        "dice": pa.int32(),
        "params": pa.struct(
            {name: _COLUMNS[kind] for name, kind in get_type_hints(SamplingParams).items() if name != "grammar"}
        ),
        "constrained": pa.bool_(),
        "task": pa.string(),
        "prior": pa.map_(pa.string(), pa.float64()),
        "bundle": pa.string(),
        "adapter": pa.string(),
        "proposed": pa.int64(),
        "accepted": pa.int64(),
        "sources": pa.map_(pa.string(), pa.struct({"proposed": pa.int64(), "accepted": pa.int64()})),
        "target_passes": pa.int64(),
        "first_token_s": pa.float64(),
        "total_s": pa.float64(),
        "ended_at": pa.float64(),
    }
)


class Proposals(msgspec.Struct, frozen=True):
    """How many tokens a source proposed for an answer, and how many of them were accepted."""

    proposed: int
    accepted: int


class Trace(Record, frozen=True, kw_only=True):
    """A record in the store. The target reproduces its output from its prompt, params, choice and dice.

    But for an answer that was held to a grammar, which is not kept: it is `constrained`. Traces of earlier versions do
    not tell.

    Served answers also have the `task` that they were routed to at the end; the `prior` of every task, if the router
    was asked and answered in time; the version of the `bundle`, and its `adapter` that drafted; what was `proposed` and
    `accepted`, in all and by `sources`; the seconds to the first token and in `total`; and when they ended, in Unix
    time. The prefill is not one of the `target_passes`.
    """

    dice: Literal[1] = 1  # `DICE` as a type: traces of other versions are not read
    constrained: bool | None = None
    task: str | None = None
    prior: dict[str, float] | None = None
    bundle: str | None = None
    adapter: str | None = None
    proposed: int | None = None
    accepted: int | None = None
    sources: dict[str, Proposals] | None = None
    target_passes: int | None = None
    first_token_s: float | None = None
    total_s: float | None = None
    ended_at: float | None = None


class TraceStore:
    """A directory of shards of at most `max_bytes` in all, not counting those set aside, and none over `max_days` old.

    `counts` has the traces `written`, `dropped_oldest` (to make room) and `dropped_expired` (too old), and the
    `unreadable` shards.
    """

    def __init__(self, directory: Path, max_bytes: int = 1 << 30, max_days: float | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._directory = directory
        self._max_bytes = max_bytes
        self._max_age = math.inf if max_days is None else max_days * _DAY

    def append(self, traces: Sequence[Trace]) -> None:
        """Write one shard, and delete the oldest ones if there is no room. Raises `OSError` if it cannot be written."""
        content = parquet_of(traces)
        if len(content) > self._max_bytes:
            raise OSError(errno.EFBIG, f"a shard of {len(content)} bytes in a store of {self._max_bytes}")
        self._directory.mkdir(parents=True, exist_ok=True)
        self.prune(len(content))
        digest = hashlib.sha256(content).hexdigest()[:16]
        replace(self._directory / f"{self._now():020d}-{len(traces)}-{digest}.parquet", content)
        self.counts["written"] += len(traces)

    def prune(self, size: int = 0) -> None:
        """Delete shards that are too old, and the oldest ones until `size` more bytes fit. Raises `OSError`."""
        ages, sizes = self._scan()
        for file, age in ages.items():
            if file.name.startswith(ASIDE):
                if age > _ABANDONED:
                    file.unlink(missing_ok=True)
            elif age > self._max_age:
                self._delete(file, "dropped_expired")
                sizes.pop(file, None)
        excess = sum(sizes.values()) + size - self._max_bytes
        for shard, freed in sizes.items():
            if excess <= 0:
                return
            excess -= freed
            self._delete(shard, "dropped_oldest")

    def __iter__(self) -> Iterator[Trace]:
        """All traces, the oldest first. A shard that cannot be read is renamed, counted and skipped."""
        return self.since(0.0)

    def since(self, moment: float) -> Iterator[Trace]:
        """The traces of shards written at this Unix time or later: all that ended since then, and some others."""
        for shard in self.shards():
            if int(_named(shard)["at"]) >= moment * 1e9:
                yield from self.read(shard)

    def read(self, shard: Path) -> list[Trace]:
        """The traces of one shard; none if it was deleted meanwhile, or if it cannot be read and is set aside."""
        try:
            content = shard.read_bytes()
        except FileNotFoundError:  # deleted by a writer meanwhile
            return []
        try:
            _check(content, _named(shard)["digest"])
            return traces_of(content)
        except (ValueError, pa.ArrowException, msgspec.ValidationError) as error:
            self._set_aside(shard, error)
            return []

    def shards(self) -> list[Path]:
        """The files of the shards, the oldest first."""
        return [file for file in self._files() if _SHARD.fullmatch(file.name)]

    def _files(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(self._directory.iterdir(), key=lambda file: file.name)

    def _scan(self) -> tuple[dict[Path, float], dict[Path, int]]:
        """The ages in seconds of all files of the store, and the sizes of its shards, the oldest first.

        An age is negative if the clock was set back since the file was written.
        """
        ages, sizes, now = dict[Path, float](), dict[Path, int](), time.time()
        for file in self._files():
            shard = _SHARD.match(file.name)
            if shard is None and not file.name.startswith(ASIDE):
                continue
            try:
                stat = file.stat()
            except FileNotFoundError:  # deleted by another process
                continue
            ages[file] = now - stat.st_mtime
            if shard is not None and shard.end() == len(file.name):  # or else it was set aside
                sizes[file] = stat.st_size
        return ages, sizes

    def _now(self) -> int:
        """Nanoseconds, later than in any shard's name even if the clock was set back: names are in order of writing."""
        shards = self.shards()
        return max(time.time_ns(), int(_named(shards[-1])["at"]) + 1 if shards else 0)

    def _delete(self, shard: Path, reason: str) -> None:
        try:
            shard.unlink()
        except FileNotFoundError:  # deleted and counted by another process
            return
        self.counts[reason] += int(_named(shard)["rows"])

    def _set_aside(self, shard: Path, error: Exception) -> None:
        self.counts["unreadable"] += 1
        _log.warning("trace shard %s cannot be read and is set aside: %s", shard, error)
        try:
            shard.rename(shard.with_name(shard.name + UNREADABLE))
        except OSError as refused:  # the reader may lack permission; the next one tries again
            _log.warning("trace shard %s stays where it is: %s", shard, refused)


def written_at(shard: Path) -> float:
    """The Unix time at which a shard was written, by its name."""
    return int(_named(shard)["at"]) / 1e9


def parquet_of(traces: Sequence[Trace]) -> bytes:
    """A shard's bytes; equal traces give equal bytes."""
    parts = (traces[at : at + _AT_ONCE] for at in range(0, len(traces), _AT_ONCE))
    table = pa.Table.from_batches(map(_batch, parts), _SCHEMA)
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _batch(traces: Sequence[Trace]) -> pa.RecordBatch:
    rows = [msgspec.to_builtins(trace) | {"prompt_length": trace.prompt_length} for trace in traces]
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)


def traces_of(content: bytes) -> list[Trace]:
    """The traces of a shard's bytes. Raises `ValueError`, `pa.ArrowException` or `msgspec.ValidationError`."""
    rows = parquet.read_table(pa.BufferReader(content), use_threads=False).to_pylist(maps_as_pydicts="strict")
    return msgspec.convert(rows, list[Trace])


def _check(content: bytes, digest: str) -> None:
    actual = hashlib.sha256(content).hexdigest()[: len(digest)]
    if actual != digest:
        raise ValueError(f"expected content of SHA-256 {digest}..., actual {actual}... in {len(content)} bytes")


def _named(shard: Path) -> re.Match[str]:
    match = _SHARD.match(shard.name)
    assert match is not None
    return match
