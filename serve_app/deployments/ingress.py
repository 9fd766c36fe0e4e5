"""The deployment behind the HTTP proxy: serves the OpenAI protocol, and calls verifier, router and draft pools.

It makes one call per prompt to the verifier, one to the router and at most one per choice to a draft pool, and one more
for each move to another, however many rounds the answer takes. `counts` has the number of calls.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from core.generation import GenerationRequest, Run
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.model_names import locate
from core.policy.rerouting import RoutingTable
from core.tasks import GENERAL
from core.text.tokenizer import load_tokenizer
from core.wire.messages import OpenSession
from serve_app.config import pool_application
from serve_app.deployments.draft_sessions import DraftSessions
from serve_app.deployments.generation_state import GenerationState
from serve_app.deployments.ingress_report import IngressReport
from serve_app.deployments.metrics import Metrics, Move, MoveMetrics
from serve_app.deployments.serve_calls import cancel_call, replica_lost
from serve_app.deployments.served_models import ServedModels
from serve_app.deployments.target_verifier import Started
from serve_app.deployments.trace_recorder import TraceRecorder
from serve_app.openai.app import create_app
from serve_app.openai.service import ChoiceRun, Overloaded, Speculation

Handle = DeploymentHandle[Any]

logger = logging.getLogger(__name__)

LATELY = 1.0  # seconds; a run that has arrived since then shows that a verifier works
PATIENCE = 5.0  # seconds for a health check
MAX_LOSSES = 3  # verifiers lost by one answer; after more it ends, since it may be the cause
RETRY_AFTER = 0.2  # seconds, four times as long after each loss


@serve.ingress()
class SpeculativeIngress:
    """An ingress replica; implements `serve_app.openai.service.Service`."""

    def __init__(self, served: ServedModels, verifier: Handle, router: Handle | None, owner_salt: bytes) -> None:
        config = served.config
        target = locate(config.target.model)
        self.tokenizer = load_tokenizer(target)
        self.model_name = config.name
        self.context = ModelConfig.load(resolve(target)).context
        self.vocab_size = self.tokenizer.num_valid
        self.tasks = tuple(served.drafts)
        self.owner_salt = owner_salt
        self.table = RoutingTable(served.drafts, served.acceptance)
        self.max_choices = min(config.ingress.max_choices, config.target.max_sessions)
        self._config = config
        self._bundle = served.version
        self._verifier = verifier
        self._router = router
        self._pools: dict[str, Handle] = {}
        self._counts: Counter[str] = Counter()
        self._proposed: Counter[str] = Counter()  # by drafts, by task
        self._accepted: Counter[str] = Counter()
        self.moves: Counter[Move] = Counter()
        self._metrics, self._move_metrics = Metrics("ingress", gauges=frozenset()), MoveMetrics()
        self._traces = None if config.traces is None else TraceRecorder(served)
        self._heard_at = -math.inf  # when a verifier last sent a run
        self.declining = False  # whether the verifier last wanted no draft at all

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_app(self)

    def describe(self) -> dict[str, object]:
        """The properties of the model for /v1/models."""
        target, draft = self._config.target, self._config.draft
        return {
            "target": target.model,
            "draft": draft.model,
            "dtype": target.dtype,
            "numerics": target.numerics,
            "context": self.context,
            "bundle": self._bundle,
            "tasks": list(self.tasks),
            "num_speculative_tokens": draft.num_speculative_tokens,
        }

    async def healthy(self) -> bool:
        """True if a verifier answers, or if runs arrive from verifiers that are too busy to answer."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (self._heard_lately() or await self._verifier_answers()):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(RETRY_AFTER)
        except (RayError, RayServeException, TimeoutError):
            return False
        return True

    def _heard_lately(self) -> bool:
        return time.monotonic() - self._heard_at < LATELY

    async def _verifier_answers(self) -> bool:
        """False if the verifier is too busy to answer; raises if there is none."""
        try:
            await asyncio.wait_for(self._verifier.counts.remote(), timeout=LATELY)
        except (BackPressureError, TimeoutError):
            return False
        return True

    def counts(self) -> Counter[str]:
        """Generations, the Serve calls made for them, sessions that went without a draft, and moves to other drafts."""
        return self._counts

    def report(self) -> IngressReport:
        """What `taskspec status` shows of this replica."""
        return IngressReport(
            self.model_name,
            self._bundle,
            self.tasks,
            self._proposed,
            self._accepted,
            None if self._traces is None else self._traces.counts(),
        )

    async def check_health(self) -> None:
        """A replica that answers is healthy."""
        self._metrics.export(self._counts)
        self._move_metrics.export(self.moves)
        if self._traces is not None:
            self._traces.export()

    def __del__(self) -> None:
        """Serve calls this once no request is left, before it ends the replica."""
        if self._traces is not None:
            self._traces.close()

    async def generate(
        self, requests: list[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        """See `Service.generate`. If a verifier is lost, another one resumes the generation."""
        self._counts["generations"] += 1
        received = GenerationState(requests)
        wiring = self._wire(received, speculation) if speculation.enabled else None
        recording = None if self._traces is None else self._traces.recording(received, wiring)
        losses = 0
        try:
            while received.unfinished:
                try:
                    async with aclosing(self._verify(received, wiring)) as runs:
                        async for run in runs:
                            if recording is not None:
                                recording.take(run)
                            yield run
                    return
                except RayError as error:
                    losses += 1
                    await self._pause(error, losses)
                except BackPressureError:
                    if not losses:
                        raise
                    await asyncio.sleep(RETRY_AFTER)  # a generation that was admitted is not refused later
        except BackPressureError as error:
            raise Overloaded("every verifier is busy and its queue is full; try again shortly") from error
        except DeploymentUnavailableError as error:
            raise Overloaded("no verifier is running; try again later") from error
        finally:
            if wiring is not None:
                wiring.close()

    async def _verify(self, received: GenerationState, wiring: DraftSessions | None) -> AsyncGenerator[ChoiceRun, None]:
        """The runs of one verifier for the choices that are not finished."""
        self._counts["verifier_calls"] += 1
        choices = received.unfinished
        verifier = self._verifier.options(stream=True)
        stream = cast(
            DeploymentResponseGenerator[Any], verifier.generate.remote([received.request(choice) for choice in choices])
        )
        try:
            started = await anext(stream)
            self._heard_at = time.monotonic()
            self.declining = started.declines_all
            if wiring is not None:
                wiring.start(started, choices)
            async for choice, run in stream:
                self._heard_at = time.monotonic()
                received.add(choice, run)
                task = wiring.task(choice) if wiring is not None else GENERAL
                self._count(task, run)
                if wiring is not None:
                    wiring.take(choice, run)
                yield ChoiceRun(choice, run, task)
        finally:
            cancel_call(stream)
            if wiring is not None:
                wiring.stop()

    def _count(self, task: str, run: Run) -> None:
        if run.source == "draft":
            self._proposed[task] += run.proposed
            self._accepted[task] += run.accepted

    async def _pause(self, error: RayError, losses: int) -> None:
        """Wait before the next verifier is called; raises if none should be."""
        if not replica_lost(error):
            raise error
        logger.warning("verifier lost: %s", type(error).__name__)
        if losses > MAX_LOSSES:
            raise Overloaded("several verifiers were lost during this answer; try again later") from error
        await asyncio.sleep(RETRY_AFTER * 4 ** (losses - 1))

    async def route(self, tokens: Sequence[int]) -> Mapping[str, float]:
        """The chance of every task for a prompt; that of `general` is 1 if the router fails or is late."""
        if self._router is None:
            return {GENERAL: 1.0}
        self._counts["router_calls"] += 1
        try:
            found: Mapping[str, float] = await asyncio.wait_for(
                self._router.route.remote(tokens), self._config.router.timeout_s
            )
        except (RayError, RayServeException, TimeoutError) as error:
            logger.warning("router: %s; taking %s", type(error).__name__, GENERAL)
            return {GENERAL: 1.0}
        return found

    def declines(self, task: str, started: Started) -> bool:
        """Whether sessions just started go without a draft of this task."""
        declined = started.declines(pool_application(task))
        self._counts["drafts_declined"] += declined
        return declined

    def open_draft(self, task: str, opened: OpenSession) -> DeploymentResponseGenerator[None]:
        """Start a session on a replica of the task's pool."""
        self._counts["draft_calls"] += 1
        if task not in self._pools:
            # serve.get_deployment_handle would block on the controller, and raise if the pool is not deployed.
            handle: Handle = DeploymentHandle("DraftPool", pool_application(task))
            self._pools[task] = handle.options(stream=True)
        return cast(DeploymentResponseGenerator[None], self._pools[task].session.remote(opened))

    def _wire(self, received: GenerationState, speculation: Speculation) -> DraftSessions:
        return DraftSessions(self, received, self._config.draft.num_speculative_tokens, speculation.task)
