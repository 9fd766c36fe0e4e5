"""Traces that wait to be written, of which each client has a bounded number, chosen by chance.

Of the answers of one client within a window, each is as likely to be kept as any other (Vitter's algorithm R). The
others are forgotten before anything is written. Who the client was is known here alone, and only until the window ends:
what is taken comes in an order drawn by lot, without the client.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable
from random import Random

from core.traces.store import Trace
from core.traces.writer import QUEUE_TOKENS, SHARD_TOKENS, Drop, num_tokens


class TraceReservoir:
    """Of each owner at most `per_owner` traces of a window of `seconds`, which begins with the first; `most` in all.

    Clients without a key, whose owner is None, count as one. `clock` gives seconds.
    """

    def __init__(
        self,
        per_owner: int,
        seconds: float = 60.0,
        most: int = 8192,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self._per_owner = per_owner
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._rng = rng or Random()
        self._began: float | None = None
        self._seen = Counter[str | None]()
        self._kept: dict[str | None, list[Trace]] = {}
        self._over = deque[Trace]()  # of windows that have ended
        self._number = self._tokens = 0  # of all that waits

    def add(self, trace: Trace, owner: str | None = None) -> Drop | None:
        """Keep it, perhaps in place of another of this owner. The reason if one of them is dropped."""
        kept = self._kept.get(owner, [])
        if len(kept) < self._per_owner:
            return self._append(trace, owner)
        self._seen[owner] += 1
        if (place := self._rng.randrange(self._seen[owner])) < self._per_owner:
            self._tokens += num_tokens(trace) - num_tokens(kept[place])
            kept[place] = trace
        return "dropped_over_key"

    def due_in(self) -> float:
        """Seconds until the window ends, 0 if traces of ended ones wait; infinite if nothing waits."""
        if self._over:
            return 0.0
        return math.inf if self._began is None else max(0.0, self._began + self._seconds - self._clock())

    def take(self) -> list[Trace]:
        """Remove the traces of the next shard; the window ends if there are none of earlier ones."""
        if not self._over:
            self._end()
        taken, tokens = list[Trace](), 0
        while self._over and tokens < SHARD_TOKENS:
            taken.append(self._over.popleft())
            tokens += num_tokens(taken[-1])
        self._number -= len(taken)
        self._tokens -= tokens
        return taken

    def _append(self, trace: Trace, owner: str | None) -> Drop | None:
        if self._number >= self._most or self._tokens >= QUEUE_TOKENS:
            return "dropped_queue_full"
        self._began = self._clock() if self._began is None else self._began
        self._kept.setdefault(owner, []).append(trace)
        self._seen[owner] += 1
        self._number += 1
        self._tokens += num_tokens(trace)
        return None

    def _end(self) -> None:
        traces = [trace for kept in self._kept.values() for trace in kept]
        self._rng.shuffle(traces)  # neighbours in a file would be of one client
        self._over.extend(traces)
        self._began = None
        self._seen.clear()
        self._kept.clear()
