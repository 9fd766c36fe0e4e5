"""The draft side of one generation: asks the router, opens draft sessions, moves them where another slot does better.

Everything here may be slow, wrong or dead without the client seeing more than a slower answer. `close` ends it all.
Among so many sessions that no draft is wanted the router is not asked either: it computes on the same cores.

The router's choice is corrected by `core.policy.rerouting`, choice by choice. A client that names a task, or how many
tokens to propose, keeps the draft that it began with.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from ray.serve.handle import DeploymentResponseGenerator

from core.draft_key import GENERAL
from core.generation import Run
from core.policy.rerouting import AnswerRoute, RoutingTable
from core.wire.messages import OpenSession
from serve_app.deployments.answer.choice_drafts import ChoiceDrafts
from serve_app.deployments.answer.generation_state import GenerationState
from serve_app.deployments.answer.started import Started
from serve_app.deployments.telemetry.metrics import Move


class Pools(Protocol):
    """What the wiring needs of the bundle that serves, as `serve_app.deployments.answer.serving`."""

    @property
    def table(self) -> RoutingTable: ...
    @property
    def declining(self) -> bool: ...
    @property
    def moves(self) -> Counter[Move]: ...
    def counts(self) -> Counter[str]: ...
    async def route(self, tokens: Sequence[int]) -> Mapping[str, float]: ...
    def refused(self, started: Started) -> set[str]: ...
    def declines(self, task: str, started: Started) -> bool: ...
    def open_draft(self, task: str, opened: OpenSession) -> DeploymentResponseGenerator[None]: ...


class DraftSessions:
    """Drafts for the choices of one prompt."""

    def __init__(self, pools: Pools, received: GenerationState, length: int, task: str | None) -> None:
        self._pools = pools
        self._received = received
        self._length = length
        self._named = task
        self.prior: Mapping[str, float] | None = None  # as the router says, once it does
        self._routing: asyncio.Task[None] | None = None
        if not pools.declining:  # or else the verifier's answer is awaited first
            self._begin_routing()
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._choices: dict[int, ChoiceDrafts] = {}

    def task(self, choice: int) -> str:
        """The task whose draft proposes for the choice; `general` if none does."""
        return self._choices[choice].proposing if choice in self._choices else GENERAL

    def start(self, started: Started, choices: Sequence[int]) -> None:
        """A verifier holds the sessions of `choices`: wire a draft to each."""
        self._starting = {
            choice: asyncio.create_task(self._start(started, session, choice))
            for choice, session in zip(choices, started.sessions, strict=True)
        }

    def take(self, choice: int, run: Run) -> None:
        """A run of a choice has arrived: learn from it, or end the drafts if it is the last."""
        if run.finish_reason is not None:
            self.end(choice)
        elif choice in self._choices:
            self._choices[choice].observe(run, self._received.remaining(choice))

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
            self.prior = await self._pools.route(self._received.request(0).tokens)

    async def _start(self, started: Started, session: int, choice: int) -> None:
        if not started.declines_all:
            await asyncio.shield(self._begin_routing())  # a choice that ends meanwhile must not take it along
        refused = self._pools.refused(started)
        slot, route = self._named, None
        if slot is None:
            route = AnswerRoute(self._pools.table, self.prior or {GENERAL: 1.0}, self._length, refused)
            slot = route.slot
        if self._pools.declines(slot, started):
            return
        if self._received.request(choice).num_speculative_tokens is not None:
            route = None

        def open_draft(slot: str, epoch: int) -> DeploymentResponseGenerator[None]:
            return self._pools.open_draft(slot, self._opening(started, session, epoch, choice))

        pools = self._pools
        self._choices[choice] = ChoiceDrafts(slot, route, refused, open_draft, pools.counts(), pools.moves)

    def _opening(self, started: Started, session: int, epoch: int, choice: int) -> OpenSession:
        request = self._received.request(choice)
        return OpenSession(
            session=session,
            epoch=epoch,
            verifier=started.verifier,
            tokens=request.tokens,
            prompt_length=request.prompt_length,
            params=msgspec.structs.replace(request.params, grammar=""),  # drafts propose, and the verifier cuts
            choice=request.choice,
            num_speculative_tokens=request.num_speculative_tokens or self._length,
            lookahead=started.lookahead,
        )
