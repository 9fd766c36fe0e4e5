"""The drafts of one generation: asks the router, opens draft sessions, moves choices to a task that does better.

Everything here may be slow, wrong or dead without the client seeing more than a slower answer. `close` ends it all.
Among so many sessions that no draft pays the router is not asked either: it computes on the same cores.

The router's choice is corrected by `core.policy.rerouting`, choice by choice. A client that names a task, or how many
tokens to propose, keeps the draft that it began with. A move opens a session of another task's draft with a higher
epoch. The verifier goes over to it once it hears from it, and ends the other (`core.verify.draft_links`). So no pass
goes without proposals for a move, and one that fails changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentResponseGenerator

from core.draft_key import GENERAL
from core.generation import Run
from core.policy.rerouting import AnswerRoute
from core.wire.messages import OpenSession
from serve_app.deployments.answer.bundles import IngressCounts, ServingBundle
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.answer.serve_calls import cancel_call
from serve_app.deployments.answer.started import Started
from serve_app.deployments.telemetry.answer_metrics import Move
from serve_app.http.exchange import happened
from serve_app.spans import MOVE

logger = logging.getLogger(__name__)

MAX_TRIES = 2  # a draft session that fails, at its opening or later, is opened once more
RETRY_AFTER = 0.2  # seconds

Open = Callable[[str, int], DeploymentResponseGenerator[None]]  # starts a session of a task's draft, with this epoch


class DraftSessions:
    """Drafts for the choices of one prompt. `length` caps the proposals for a pass; `task` is that of the client."""

    def __init__(self, bundle: ServingBundle, generation: Generation, length: int, task: str | None) -> None:
        self._bundle = bundle
        self._generation = generation
        self._length = length
        self._named = task
        self.prior: Mapping[str, float] | None = None  # as the router says, once it does
        self._routing: asyncio.Task[None] | None = None
        if not bundle.counts.declining:  # or else what the verifier says is awaited first
            self._begin_routing()
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._choices: dict[int, ChoiceDrafts] = {}

    def task(self, choice: int) -> str:
        """The task whose draft proposes for the choice; `general` if none does."""
        return self._choices[choice].proposing if choice in self._choices else GENERAL

    def start(self, started: Started, choices: Sequence[int]) -> None:
        """A verifier holds the sessions of `choices`: give each a draft."""
        self._starting = {
            choice: asyncio.create_task(self._start(started, session, choice))
            for choice, session in zip(choices, started.sessions, strict=True)
        }

    def observe(self, choice: int, run: Run) -> None:
        """A run of a choice has arrived: learn from it, or end the drafts if it is the last."""
        if run.finish_reason is not None:
            self.end(choice)
        elif choice in self._choices:
            self._choices[choice].observe(run, self._generation.remaining(choice))

    def end(self, choice: int) -> None:
        """A choice needs no drafts any more."""
        if choice in self._starting:
            self._starting.pop(choice).cancel()
        if choice in self._choices:
            self._choices.pop(choice).close()

    def stop(self) -> None:
        """The verifier is gone or done: end every draft session, also those still queued."""
        for choice in list(self._starting):
            self.end(choice)

    def close(self) -> None:
        """The generation is over."""
        if self._routing is not None:
            self._routing.cancel()
        self.stop()

    def _begin_routing(self) -> asyncio.Task[None]:
        """Once for all choices."""
        self._routing = self._routing or asyncio.create_task(self._route())
        return self._routing

    async def _route(self) -> None:
        if self._named is None:
            self.prior = await self._bundle.route(self._generation.resumed(0).tokens)

    async def _start(self, started: Started, session: int, choice: int) -> None:
        if not started.declines_all:
            await asyncio.shield(self._begin_routing())  # a choice that ends meanwhile must not take it along
        declined = self._bundle.declined(started)
        task, route = self._named, None
        if task is None:
            route = AnswerRoute(self._bundle.table, self.prior or {GENERAL: 1.0}, self._length, declined)
            task = route.draft
        if task in declined:
            self._bundle.counts.events["drafts_declined"] += 1
            return
        if self._generation.requests[choice].num_speculative_tokens is not None:
            route = None

        def open_draft(task: str, epoch: int) -> DeploymentResponseGenerator[None]:
            return self._bundle.open_draft(task, self._opening(started, session, epoch, choice))

        self._choices[choice] = ChoiceDrafts(task, route, declined, open_draft, self._bundle.counts)

    def _opening(self, started: Started, session: int, epoch: int, choice: int) -> OpenSession:
        request = self._generation.resumed(choice)
        return OpenSession(
            session=session,
            epoch=epoch,
            verifier=started.verifier,
            tokens=request.tokens,
            prompt_length=request.prompt_length,
            params=msgspec.structs.replace(request.params, grammar=""),  # drafts propose, and the verifier cuts
            choice=request.choice,
            num_speculative_tokens=request.num_speculative_tokens or self._length,
        )


class ChoiceDrafts:
    """The draft of one choice at one verifier, beginning with that of `task`, and during a move the next one beside it.

    Without a `route` there are no moves, and none goes to a task whose draft was `declined` or could not be opened.
    """

    def __init__(
        self, task: str, route: AnswerRoute | None, declined: Iterable[str], open_draft: Open, counts: IngressCounts
    ) -> None:
        self.task = task
        self._counts = counts
        self._route = route
        self._barred = set(declined)
        self._open_draft = open_draft
        self._epoch = 0
        self._open: list[str] = []  # the tasks of the sessions that are open, the oldest first
        self._calls: set[asyncio.Task[None]] = set()
        self._begin(task)

    @property
    def proposing(self) -> str:
        """The task whose draft made the last proposals, or will make the next."""
        return self._open[0] if self._open else self.task

    def observe(self, run: Run, remaining: int) -> None:
        """Learn from a run, after which the choice may get so many more tokens; move if that pays."""
        drafted = run.proposed and run.source == "draft"
        if self._route is None or self._open != [self.task] or not drafted:
            return
        self._route.observe(run)
        better = self._route.better(self._barred, remaining) if len(self._calls) == 1 else None
        if better is not None:
            self._begin(better)

    def close(self) -> None:
        """End every session, also those still queued."""
        for call in self._calls:
            call.cancel()

    def _begin(self, task: str) -> None:
        call = asyncio.create_task(self._keep_open(task))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _keep_open(self, task: str) -> None:
        """Hold a session of the task's draft, and open it again if it fails while the choice drafts with it."""
        for _ in range(MAX_TRIES):
            try:
                await self._hold(task)
                return
            except (RayError, RayServeException) as error:
                logger.warning("draft session of %s lost: %s", task, type(error).__name__)
                if task == self.task:
                    await asyncio.sleep(RETRY_AFTER)
                if task != self.task:  # it never joined, or another one has meanwhile
                    self._barred.add(task)
                    return

    async def _hold(self, task: str) -> None:
        stream = self._open_draft(task, self._epoch)
        self._epoch += 1
        try:
            async for _ in stream:  # its one item says that it is open
                self._open.append(task)
                if task != self.task:
                    self._move(task)
        finally:
            cancel_call(stream)
            if task in self._open:
                self._open.remove(task)

    def _move(self, task: str) -> None:
        self._counts.moves[Move(self.task, task)] += 1
        self._counts.events["rerouted"] += 1
        happened(MOVE, {"taskspec.from": self.task, "taskspec.to": task})
        self.task = task
        if self._route is not None:
            self._route.move(task)
