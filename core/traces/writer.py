"""Writes traces from a thread of its own: who adds one never waits for the disk.

A shard is written when enough traces wait for it or the first has waited for long enough. Traces that still wait are
lost with the process.
"""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Literal, Protocol

from core.traces.store import Trace, TraceStore

Redact = Callable[[Trace], Trace | None]  # what may be kept of a trace; None for nothing
Drop = Literal["dropped_queue_full", "dropped_over_key"]

SHARD_TOKENS = 1 << 20  # of a shard, about four bytes each
QUEUE_TOKENS = 1 << 22  # that wait; in memory they take up to 36 bytes each
IDLE_SECONDS = 600.0  # after which old shards are deleted though there is none to write
_log = logging.getLogger(__name__)


class PendingTraces(Protocol):
    """Traces that wait to be written."""

    def add(self, trace: Trace, owner: str | None = None) -> Drop | None:
        """Why this one, or another of its owner in its place, is dropped; None if none is."""
        ...

    def due_in(self) -> float:
        """Seconds until the next shard should be written, 0 for now; infinite if nothing waits."""
        ...

    def take(self) -> list[Trace]:
        """Remove the traces of the next shard; none only if nothing waits."""
        ...


class TraceQueue:
    """Traces that wait to be written, at most `limit` of them and about `QUEUE_TOKENS`. `clock` gives seconds."""

    def __init__(
        self,
        flush_records: int = 1024,
        flush_seconds: float = 60.0,
        limit: int = 8192,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flush_records = min(flush_records, limit)
        self._flush_seconds = flush_seconds
        self._limit = limit
        self._clock = clock
        self._waiting: deque[tuple[float, Trace]] = deque()
        self._tokens = 0

    def add(self, trace: Trace, owner: str | None = None) -> Drop | None:  # noqa: ARG002 - all owners are alike
        """The reason if there is no room for it."""
        if len(self._waiting) == self._limit or self._tokens >= QUEUE_TOKENS:
            return "dropped_queue_full"
        self._waiting.append((self._clock(), trace))
        self._tokens += num_tokens(trace)
        return None

    def due_in(self) -> float:
        """Seconds until the next shard should be written, 0 for now; infinite if nothing waits."""
        if not self._waiting:
            return math.inf
        if len(self._waiting) >= self._flush_records or self._tokens >= SHARD_TOKENS:
            return 0.0
        return max(0.0, self._waiting[0][0] + self._flush_seconds - self._clock())

    def take(self) -> list[Trace]:
        """Remove the traces of the next shard."""
        traces, tokens = list[Trace](), 0
        while self._waiting and len(traces) < self._flush_records and tokens < SHARD_TOKENS:
            traces.append(self._waiting.popleft()[1])
            tokens += num_tokens(traces[-1])
        self._tokens -= tokens
        return traces


class TraceWriter:
    """Writes the traces added to it, or what `redact` leaves of them; `add` never blocks or raises.

    `counts` adds to the store's: `shards` written and `failed_writes`, and the traces that were `dropped_queue_full`,
    `dropped_over_key` (others of the same client are kept), `dropped_unwritable`, `dropped_redacted` (nothing of them
    may be kept) or `dropped_redaction_failed`.
    """

    def __init__(self, store: TraceStore, queue: PendingTraces | None = None, redact: Redact | None = None) -> None:
        self.counts = store.counts
        self._store = store
        self._queue: PendingTraces = queue or TraceQueue()
        self._redact = redact
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def add(self, trace: Trace, owner: str | None = None) -> None:
        """`owner` stands for the client; it is not written."""
        with self._changed:
            if (dropped := self._queue.add(trace, owner)) is None:
                self._changed.notify()
            else:
                self.counts[dropped] += 1

    def close(self) -> None:
        """Write all added traces and end the thread; nothing may be added afterwards."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (traces := self._next()) is not None:
            self._write([redacted for trace in traces if (redacted := self._redacted(trace)) is not None])

    def _next(self) -> list[Trace] | None:
        """Wait for the traces of the next shard; none if there were none for a while, None after the last."""
        with self._changed:
            while not self._closing and (seconds := self._queue.due_in()) > 0.0:
                notified = self._changed.wait(min(seconds, IDLE_SECONDS))
                if not notified and seconds > IDLE_SECONDS:
                    return []
            return self._queue.take() or None

    def _redacted(self, trace: Trace) -> Trace | None:
        """What may be kept of a trace. Where the hook fails only its place is logged: a message may hold content."""
        try:
            redacted = trace if self._redact is None else self._redact(trace)
        except Exception as error:  # noqa: BLE001 - a hook may raise anything
            if not self.counts["dropped_redaction_failed"]:
                place = traceback.extract_tb(error.__traceback__)[-1]
                _log.warning("redact: %s at %s:%d; further ones are only counted", type(error).__name__, *place[:2])
            self.counts["dropped_redaction_failed"] += 1
            return None
        if redacted is None:
            self.counts["dropped_redacted"] += 1
        return redacted

    def _write(self, traces: list[Trace]) -> None:
        try:
            if traces:
                self._store.append(traces)
                self.counts["shards"] += 1
            else:
                self._store.prune()
        except OSError as error:
            self._failed(traces, str(error))
        except Exception as error:  # noqa: BLE001 - one bad trace must neither end the thread nor take others with it
            self._write_apart(traces, error)

    def _write_apart(self, traces: list[Trace], error: Exception) -> None:
        """Write what of these traces can be written; what an error of another kind says may be content."""
        if len(traces) <= 1:
            self._failed(traces, type(error).__name__)
            return
        middle = len(traces) // 2
        self._write(traces[:middle])
        self._write(traces[middle:])

    def _failed(self, traces: list[Trace], reason: str) -> None:
        _log.warning("%d traces dropped: %s", len(traces), reason)
        self.counts["failed_writes"] += 1
        self.counts["dropped_unwritable"] += len(traces)


def num_tokens(trace: Trace) -> int:
    return len(trace.prompt_ids) + len(trace.output_ids)
