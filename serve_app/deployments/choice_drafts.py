"""The draft side of one choice at one verifier: a draft that proposes, and during a move the next one beside it.

A move opens a session of another slot with a higher epoch. The verifier goes over to it once it is heard, and ends the
other (`core.verify.draft_links`). So no pass goes without proposals for a move, and one that fails changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentResponseGenerator

from core.generation import Run
from core.policy.rerouting import AnswerRoute
from serve_app.deployments.metrics import Move
from serve_app.deployments.serve_calls import cancel_call

logger = logging.getLogger(__name__)

MAX_TRIES = 2  # a draft session that is lost or refused is opened once more
RETRY_AFTER = 0.2  # seconds

Open = Callable[[str, int], DeploymentResponseGenerator[None]]  # starts a session of a slot, with this epoch


class ChoiceDrafts:
    """Drafts for one choice, beginning with `slot`; without a `route` it is never left.

    Slots that are `refused` are not moved to, nor is one whose session could not be opened. `counts` has the number of
    moves (`rerouted`), and what was proposed and accepted before and after them; `moves` has them by slots.
    """

    def __init__(
        self,
        slot: str,
        route: AnswerRoute | None,
        refused: Iterable[str],
        open_draft: Open,
        counts: Counter[str],
        moves: Counter[Move],
    ) -> None:
        self.slot = slot
        self._counts = counts
        self._moves = moves
        self._route = route
        self._refused = set(refused)
        self._open_draft = open_draft
        self._before = Counter[str]()
        self._moved = False
        self._epoch = 0
        self._open: list[str] = []  # the slots of the sessions that are open, the oldest first
        self._calls: set[asyncio.Task[None]] = set()
        self._begin(slot)

    @property
    def proposing(self) -> str:
        """The slot whose draft the last proposals were of, or the next will be."""
        return self._open[0] if self._open else self.slot

    def observe(self, run: Run, remaining: int) -> None:
        """Learn from a run, after which the choice may get so many more tokens; move if that pays."""
        drafted = run.proposed and run.source == "draft"
        if self._route is None or self._open != [self.slot] or not drafted:
            return
        self._count(run)
        self._route.observe(run)
        better = self._route.better(self._refused, remaining) if len(self._calls) == 1 else None
        if better is not None:
            self._begin(better)

    def close(self) -> None:
        """End every session, also those still queued."""
        for call in self._calls:
            call.cancel()

    def _begin(self, slot: str) -> None:
        call = asyncio.create_task(self._keep(slot))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _keep(self, slot: str) -> None:
        """Hold a session of the slot, and open it again if it is lost while the choice drafts with it."""
        for _ in range(MAX_TRIES):
            try:
                await self._hold(slot)
                return
            except (RayError, RayServeException) as error:
                logger.warning("draft session of %s lost: %s", slot, type(error).__name__)
                if slot == self.slot:
                    await asyncio.sleep(RETRY_AFTER)
                if slot != self.slot:  # it never joined, or another one has meanwhile
                    self._refused.add(slot)
                    return

    async def _hold(self, slot: str) -> None:
        stream = self._open_draft(slot, self._epoch)
        self._epoch += 1
        try:
            async for _ in stream:  # its one item says that it is open
                self._open.append(slot)
                if slot != self.slot:
                    self._take_over(slot)
        finally:
            cancel_call(stream)
            if slot in self._open:
                self._open.remove(slot)

    def _take_over(self, slot: str) -> None:
        self._moves[Move(self.slot, slot)] += 1
        self.slot = slot
        if self._route is not None:
            self._route.move(slot)
        if not self._moved:
            self._counts.update(self._before)
        self._counts["rerouted"] += 1
        self._moved = True

    def _count(self, run: Run) -> None:
        counts, when = (self._counts, "after") if self._moved else (self._before, "before")
        counts[f"proposed_{when}_moves"] += run.proposed
        counts[f"accepted_{when}_moves"] += run.accepted
