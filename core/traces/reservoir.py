"""Samples of what streams by, each item as likely as any other, and the traces of clients that wait to be written."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from core.traces.store import Trace
from core.traces.writer import QUEUE_TOKENS, SHARD_TOKENS, Drop, num_tokens

Item = TypeVar("Item")


class Reservoir(Generic[Item]):
    """At most `size` of the items that were `offered`, each as likely as any other (Vitter's algorithm R)."""

    def __init__(self, size: int, rng: Random) -> None:
        self.items: list[Item] = []
        self.offered = 0
        self._size = size
        self._rng = rng

    def offer(self, item: Item) -> Item | None:
        """The item that is dropped for lack of room, this one or another; None while there is room."""
        self.offered += 1
        if len(self.items) < self._size:
            self.items.append(item)
            return None
        if (place := self._rng.randrange(self.offered)) < self._size:
            self.items[place], item = item, self.items[place]
        return item


class TraceReservoir:
    """Of each owner at most `per_owner` traces of a window of `seconds`, which begins with the first; `limit` in all.

    The others are forgotten before anything is written. Who the client was is known here alone, and only until the
    window ends: traces are taken in a random order, without the client. Clients without a key, whose owner is None,
    count as one. `clock` gives seconds.
    """

    def __init__(
        self,
        per_owner: int,
        seconds: float = 60.0,
        limit: int = 8192,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self._per_owner = per_owner
        self._seconds = seconds
        self._limit = limit
        self._clock = clock
        self._rng = rng or Random()
        self._began: float | None = None
        self._by_owner: dict[str | None, Reservoir[Trace]] = {}
        self._over = deque[Trace]()  # of windows that have ended
        self._number = self._tokens = 0  # of all that waits

    def add(self, trace: Trace, owner: str | None = None) -> Drop | None:
        """Keep it, perhaps in place of another of this owner. The reason if one of them is dropped."""
        own = self._by_owner.get(owner) or Reservoir(self._per_owner, self._rng)
        is_new = len(own.items) < self._per_owner
        if is_new and (self._number >= self._limit or self._tokens >= QUEUE_TOKENS):
            return "dropped_queue_full"
        dropped = own.offer(trace)
        self._tokens += num_tokens(trace) - (0 if dropped is None else num_tokens(dropped))
        if not is_new:
            return "dropped_over_key"
        self._began = self._clock() if self._began is None else self._began
        self._by_owner[owner] = own
        self._number += 1
        return None

    def due_in(self) -> float:
        """Seconds until the window ends, 0 if traces of ended ones wait; infinite if nothing waits."""
        if self._over:
            return 0.0
        return math.inf if self._began is None else max(0.0, self._began + self._seconds - self._clock())

    def take(self) -> list[Trace]:
        """Remove the traces of the next shard; the window ends if there are none of earlier ones."""
        if not self._over:
            self._end()
        traces, tokens = list[Trace](), 0
        while self._over and tokens < SHARD_TOKENS:
            traces.append(self._over.popleft())
            tokens += num_tokens(traces[-1])
        self._number -= len(traces)
        self._tokens -= tokens
        return traces

    def _end(self) -> None:
        traces = [trace for own in self._by_owner.values() for trace in own.items]
        self._rng.shuffle(traces)  # neighbours in a file would be of one client
        self._over.extend(traces)
        self._began = None
        self._by_owner.clear()
