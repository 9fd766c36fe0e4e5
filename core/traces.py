"""What the service really answered, kept for training: Parquet shards in a directory that never grows beyond a size.

In: traces, off the request path, and whatever may go wrong with a disk. Out: the same traces, oldest first.
A shard is named by when it was written, how many traces it holds and the hash of its bytes; it appears by one rename.
Any number of processes may write to one directory.
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

from core.durable import ASIDE, replace
from core.record import Record

UNREADABLE = ".unreadable"  # what a shard that was set aside is called after its name
_SHARD = re.compile(r"(?P<at>\d{20})-(?P<rows>\d+)-(?P<digest>[0-9a-f]{16})\.parquet")
_ABANDONED = 3600.0  # seconds after which a file written aside is a killed process's
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
    """A record as the service keeps it; with its params, choice and dice the target says the same again.

    Known of served answers: the `task` routed to, the `adapter` that drafted, and the counts over the whole answer.
    """

    dice: Literal[1] = 1  # `DICE` as a type: what was made under others is not read
    task: str | None = None
    adapter: str | None = None
    proposed: int | None = None
    accepted: int | None = None
    target_passes: int | None = None


class TraceStore:
    """A directory of shards, of `max_bytes` in all (those set aside not counted).

    `counts`: traces `written`, `dropped_oldest` to make room; shards `unreadable`.
    """

    def __init__(self, directory: Path, max_bytes: int = 1 << 30) -> None:
        self.counts: Counter[str] = Counter()
        self._directory = directory
        self._max_bytes = max_bytes

    def append(self, traces: Sequence[Trace]) -> None:
        """Write one shard, in place of the oldest ones where there is no room; `OSError` where it cannot be written."""
        content = parquet_of(traces)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._make_room(len(content))
        digest = hashlib.sha256(content).hexdigest()[:16]
        replace(self._directory / f"{time.time_ns():020d}-{len(traces)}-{digest}.parquet", content)
        self.counts["written"] += len(traces)

    def __iter__(self) -> Iterator[Trace]:
        """Every trace there is, the oldest first; a shard that cannot be read is renamed, counted and passed over."""
        for shard in self.shards():
            try:
                content = shard.read_bytes()
            except FileNotFoundError:  # a writer made room meanwhile
                continue
            try:
                _check(content, _named(shard)["digest"])
                traces = traces_of(content)
            except (ValueError, pa.ArrowException, msgspec.ValidationError) as error:
                self._set_aside(shard, error)
                continue
            yield from traces

    def shards(self) -> list[Path]:
        """The shards' files, the oldest first."""
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
            except FileNotFoundError:  # another process made room, and counts it
                continue
            self.counts["dropped_oldest"] += int(_named(shard)["rows"])

    def _clear_abandoned(self) -> None:
        for file in self._directory.glob(f"{ASIDE}*"):
            try:
                if time.time() - file.stat().st_mtime > _ABANDONED:
                    file.unlink()
            except FileNotFoundError:  # another process was faster
                continue

    def _set_aside(self, shard: Path, error: Exception) -> None:
        self.counts["unreadable"] += 1
        _log.warning("trace shard %s cannot be read and is set aside: %s", shard, error)
        try:
            shard.rename(shard.with_name(shard.name + UNREADABLE))
        except OSError as refused:  # a reader may lack the right to rename; the next one will see it again
            _log.warning("trace shard %s stays where it is: %s", shard, refused)


class TraceWriter:
    """Takes traces from a service without ever waiting or raising; a thread of its own writes them.

    A shard is written when it has `rows_per_shard` traces or its first one is `max_wait` seconds old. What is not
    written yet is lost with the process. `counts` adds to the store's: traces `dropped_queue_full`, and
    `dropped_unwritable` where the disk is full or the trace cannot be encoded.
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
        """Write what was added and end; nothing may be added after."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, more = self._collect(first)
            self._write(batch)
            if not more:
                return

    def _collect(self, first: Trace) -> tuple[list[Trace], bool]:
        """A shard's traces, and whether more may come."""
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
        except Exception:  # noqa: BLE001 - a trace that cannot be encoded is no reason to stop serving
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
    """What `parquet_of` encoded; `ValueError`, `pa.ArrowException` or `msgspec.ValidationError` where it did not."""
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
    except FileNotFoundError:  # another process made room
        return 0
