"""The trace store: answers of a service, kept for training in Parquet shards, and the retention of old ones.

Retention is by size: the oldest shards are deleted to make room (`TraceStore._make_room`). A shard's name holds its
time of writing, its number of traces and the hash of its bytes; it appears by one rename. Any number of processes may
write to one directory.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Thread
from typing import Literal

import msgspec
import pyarrow as pa
from pyarrow import parquet

from core.bundle.atomic_files import ASIDE, replace
from core.distill.record import Record

UNREADABLE = ".unreadable"  # suffix of a shard that was set aside
_SHARD = re.compile(r"(?P<at>\d{20})-(?P<rows>\d+)-(?P<digest>[0-9a-f]{16})\.parquet")
_ABANDONED = 3600.0  # seconds after which a temporary file counts as left by a killed process
_log = logging.getLogger(__name__)

_SCHEMA = pa.schema(
    {
        "prompt_ids": pa.list_(pa.int32()),
        "output_ids": pa.list_(pa.int32()),
        "prompt_length": pa.int32(),
        "choice": pa.int32(),
        "dice": pa.int32(),
        "params": pa.struct(
            {
                "seed": pa.int64(),
                "max_tokens": pa.int64(),
                "temperature": pa.float64(),
                "top_k": pa.int64(),
                "top_p": pa.float64(),
                "min_p": pa.float64(),
                "presence_penalty": pa.float64(),
                "frequency_penalty": pa.float64(),
                "logit_bias": pa.map_(pa.int64(), pa.float64()),
                "stop": pa.list_(pa.string()),
                "logprobs": pa.int32(),
            }
        ),
        "task": pa.string(),
        "adapter": pa.string(),
        "proposed": pa.int64(),
        "accepted": pa.int64(),
        "target_passes": pa.int64(),
    }
)


class Trace(Record, frozen=True, kw_only=True):
    """A record in the store. The target reproduces its output from its prompt, params, choice and dice.

    Served answers also have the `task` they were routed to, the `adapter` that drafted, and the counts of the answer.
    """

    dice: Literal[1] = 1  # `DICE` as a type: traces of other versions are not read
    task: str | None = None
    adapter: str | None = None
    proposed: int | None = None
    accepted: int | None = None
    target_passes: int | None = None


class TraceStore:
    """A directory of shards of at most `max_bytes` in all, not counting those set aside.

    `counts` has the traces `written` and `dropped_oldest` (to make room), and the `unreadable` shards.
    """

    def __init__(self, directory: Path, max_bytes: int = 1 << 30) -> None:
        self.counts: Counter[str] = Counter()
        self._directory = directory
        self._max_bytes = max_bytes

    def append(self, traces: Sequence[Trace]) -> None:
        """Write one shard, and delete the oldest ones if there is no room. Raises `OSError` if it cannot be written."""
        content = parquet_of(traces)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._make_room(len(content))
        digest = hashlib.sha256(content).hexdigest()[:16]
        replace(self._directory / f"{time.time_ns():020d}-{len(traces)}-{digest}.parquet", content)
        self.counts["written"] += len(traces)

    def __iter__(self) -> Iterator[Trace]:
        """All traces, the oldest first. A shard that cannot be read is renamed, counted and skipped."""
        for shard in self.shards():
            try:
                content = shard.read_bytes()
            except FileNotFoundError:  # deleted by a writer meanwhile
                continue
            try:
                _check(content, _named(shard)["digest"])
                traces = traces_of(content)
            except (ValueError, pa.ArrowException, msgspec.ValidationError) as error:
                self._set_aside(shard, error)
                continue
            yield from traces

    def shards(self) -> list[Path]:
        """The files of the shards, the oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(file for file in self._directory.iterdir() if _SHARD.fullmatch(file.name))

    def _make_room(self, size: int) -> None:
        if size > self._max_bytes:
            raise OSError(errno.EFBIG, f"a shard of {size} bytes in a store of {self._max_bytes}")
        self._clear_abandoned()
        sizes = {shard: _size(shard) for shard in self.shards()}
        excess = sum(sizes.values()) + size - self._max_bytes
        for shard, freed in sizes.items():
            if excess <= 0:
                return
            excess -= freed
            try:
                shard.unlink()
            except FileNotFoundError:  # deleted and counted by another process
                continue
            self.counts["dropped_oldest"] += int(_named(shard)["rows"])

    def _clear_abandoned(self) -> None:
        for file in self._directory.glob(f"{ASIDE}*"):
            try:
                if time.time() - file.stat().st_mtime > _ABANDONED:
                    file.unlink()
            except FileNotFoundError:  # deleted by another process
                continue

    def _set_aside(self, shard: Path, error: Exception) -> None:
        self.counts["unreadable"] += 1
        _log.warning("trace shard %s cannot be read and is set aside: %s", shard, error)
        try:
            shard.rename(shard.with_name(shard.name + UNREADABLE))
        except OSError as refused:  # the reader may lack permission; the next one tries again
            _log.warning("trace shard %s stays where it is: %s", shard, refused)


class TraceWriter:
    """Writes traces from a thread of its own; `add` never blocks or raises.

    A shard is written when it has `rows_per_shard` traces or its first one is `max_wait` seconds old. Traces not yet
    written are lost with the process. `counts` adds to the store's: traces `dropped_queue_full`, and
    `dropped_unwritable` if the disk is full or a trace cannot be encoded.
    """

    def __init__(
        self, store: TraceStore, *, rows_per_shard: int = 1024, max_wait: float = 60.0, max_queued: int = 8192
    ) -> None:
        self.counts = store.counts
        self._store = store
        self._rows_per_shard = rows_per_shard
        self._max_wait = max_wait
        self._queue: Queue[Trace | None] = Queue(max_queued)
        self._thread = Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def add(self, trace: Trace) -> None:
        try:
            self._queue.put_nowait(trace)
        except Full:
            self.counts["dropped_queue_full"] += 1

    def close(self) -> None:
        """Write all added traces and end the thread; nothing may be added afterwards."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, more = self._collect(first)
            self._write(batch)
            if not more:
                return

    def _collect(self, first: Trace) -> tuple[list[Trace], bool]:
        """The traces of a shard; False with the last ones."""
        batch, ends = [first], time.monotonic() + self._max_wait
        while len(batch) < self._rows_per_shard:
            try:
                trace = self._queue.get(timeout=max(0.0, ends - time.monotonic()))
            except Empty:
                break
            if trace is None:
                return batch, False
            batch.append(trace)
        return batch, True

    def _write(self, traces: list[Trace]) -> None:
        try:
            self._store.append(traces)
            return
        except OSError as error:
            _log.warning("%d traces dropped: %s", len(traces), error)
        except Exception:  # noqa: BLE001 - one bad trace must not end the thread
            _log.exception("%d traces dropped", len(traces))
        self.counts["dropped_unwritable"] += len(traces)


def parquet_of(traces: Sequence[Trace]) -> bytes:
    """A shard's bytes; equal traces give equal bytes."""
    rows = [msgspec.to_builtins(trace) | {"prompt_length": trace.prompt_length} for trace in traces]
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(rows, _SCHEMA), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def traces_of(content: bytes) -> list[Trace]:
    """The traces of a shard's bytes. Raises `ValueError`, `pa.ArrowException` or `msgspec.ValidationError`."""
    rows = parquet.read_table(pa.BufferReader(content), use_threads=False).to_pylist(maps_as_pydicts="strict")
    return msgspec.convert(rows, list[Trace])


def _check(content: bytes, digest: str) -> None:
    found = hashlib.sha256(content).hexdigest()[: len(digest)]
    if found != digest:
        raise ValueError(f"expected content of SHA-256 {digest}..., found {found}... in {len(content)} bytes")


def _named(shard: Path) -> re.Match[str]:
    found = _SHARD.fullmatch(shard.name)
    assert found is not None
    return found


def _size(shard: Path) -> int:
    try:
        return shard.stat().st_size
    except FileNotFoundError:  # deleted by another process
        return 0
