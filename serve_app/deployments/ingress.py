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
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from core.generation import GenerationRequest
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.model_names import locate
from core.tasks import GENERAL
from core.text.tokenizer import load_tokenizer
from serve_app.access.guarding import guarded
from serve_app.access.key_file import Names
from serve_app.access.keys import Keys
from serve_app.deployments.answer_metrics import AnswerMetrics
from serve_app.deployments.bundle_choice import BundleChoice
from serve_app.deployments.draft_sessions import DraftSessions
from serve_app.deployments.generation_state import GenerationState
from serve_app.deployments.health import SharedLook
from serve_app.deployments.ingress_report import IngressReport
from serve_app.deployments.metrics import Metrics, MoveMetrics
from serve_app.deployments.node_metrics import cluster_metrics
from serve_app.deployments.plan import Judged
from serve_app.deployments.serve_calls import cancel_call, replica_lost, without_traceback
from serve_app.deployments.served_models import ServedModels
from serve_app.deployments.serving import Serving, Tallies
from serve_app.deployments.trace_recorder import TraceRecorder
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

    def __init__(
        self, served: ServedModels, verifier: Handle, owner_salt: bytes, keys_of_environment: Names | None = None
    ) -> None:
        config = served.config
        keys = config.ingress.keys
        self._keys = None if keys is None else Keys(keys.file, keys_of_environment or {})
        target = locate(config.target.model)
        self.tokenizer = load_tokenizer(target, config.target.tool_format)
        self.model_name = config.name
        self.aliases = config.aliases
        self.context = ModelConfig.load(resolve(target)).context
        self.vocab_size = self.tokenizer.num_valid
        self.owner_salt = owner_salt
        self.max_choices = min(config.ingress.max_choices, config.target.max_sessions)
        self._config = config
        self._verifier = verifier
        self._tallies = Tallies()
        self._bundles = BundleChoice(served, self._tallies)
        self._proposed: Counter[str] = Counter()  # by drafts, by pool
        self._accepted: Counter[str] = Counter()
        self._answers = AnswerMetrics()
        self._metrics, self._move_metrics = Metrics("ingress", gauges=frozenset()), MoveMetrics()
        self._traces = None if config.traces is None else TraceRecorder(config.traces)
        self._heard_at = -math.inf  # when a verifier last sent a run
        self._health = SharedLook(self._look)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Those of the bundle that serves."""
        return self._bundles.current.tasks

    def __serve_build_asgi_app__(self) -> FastAPI:
        return guarded(self, self._config.ingress, self._keys, numbered_by_proxy=True)

    def describe(self) -> dict[str, object]:
        """The properties of the model for /v1/models."""
        target, draft = self._config.target, self._config.draft
        return {
            "target": target.model,
            "draft": draft.model,
            "dtype": target.dtype,
            "numerics": target.numerics,
            "context": self.context,
            "bundle": self._bundles.current.version,
            "tasks": list(self.tasks),
            "num_speculative_tokens": draft.num_speculative_tokens,
        }

    async def healthy(self) -> bool:
        """True if a verifier answers, or if runs arrive from verifiers that are too busy to answer."""
        return await self._health()

    async def _look(self) -> bool:
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

    async def metrics(self) -> str:
        """See `Service.metrics`."""
        return await cluster_metrics()

    def counts(self) -> Counter[str]:
        """Generations, the Serve calls made for them, sessions that went without a draft, and moves to other drafts."""
        return self._tallies.counts

    def served(self) -> ServedModels:
        """The configuration and the models of the bundle that serves."""
        return self._bundles.current.served

    def report(self) -> IngressReport:
        """What `taskspec status` shows of this replica."""
        served = self._bundles.current.served
        return IngressReport(
            self.model_name,
            served.version,
            {served.pool(task): task for task in served.drafts},
            served.router,
            self._proposed,
            self._accepted,
            None if self._traces is None else self._traces.counts(),
        )

    async def check_health(self) -> None:
        """A replica that answers is healthy."""
        self._bundles.talk()
        self._metrics.export(self._tallies.counts)
        self._answers.export()
        self._move_metrics.export(self._tallies.moves)
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
        self._tallies.counts["generations"] += 1
        received, serving, judged = GenerationState(requests), self._bundles.choose(speculation.task), Judged()
        wiring = self._wire(received, serving, speculation) if speculation.enabled else None
        recording = None if self._traces is None else self._traces.recording(received, wiring, serving.served)
        timed = self._answers.begin()
        self._bundles.begin(serving)
        losses = 0
        try:
            while received.unfinished:
                try:
                    async with aclosing(self._verify(received, wiring)) as runs:
                        async for run in runs:
                            self._count(run, serving, judged)
                            timed.take(run, serving.version)
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
            routed = wiring.prior if wiring is not None else None
            self._bundles.end(serving, judged.answers(routed or {GENERAL: 1.0}))
            if wiring is not None:
                wiring.close()

    async def _verify(self, received: GenerationState, wiring: DraftSessions | None) -> AsyncGenerator[ChoiceRun, None]:
        """The runs of one verifier for the choices that are not finished."""
        self._tallies.counts["verifier_calls"] += 1
        choices = received.unfinished
        verifier = self._verifier.options(stream=True)
        stream = cast(
            DeploymentResponseGenerator[Any], verifier.generate.remote([received.request(choice) for choice in choices])
        )
        try:
            started = await anext(stream)
            self._heard_at = time.monotonic()
            self._tallies.declining = started.declines_all
            if wiring is not None:
                wiring.start(started, choices)
            async for choice, run in stream:
                self._heard_at = time.monotonic()
                received.add(choice, run)
                task = wiring.task(choice) if wiring is not None else GENERAL
                if wiring is not None:
                    wiring.take(choice, run)
                yield ChoiceRun(choice, run, task)
        finally:
            cancel_call(stream)
            if wiring is not None:
                wiring.stop()

    def _count(self, run: ChoiceRun, serving: Serving, judged: Judged) -> None:
        judged.take(run.choice, run.run)
        if run.run.source == "draft":
            pool = serving.served.pool(run.task)
            self._proposed[pool] += run.run.proposed
            self._accepted[pool] += run.run.accepted

    async def _pause(self, error: RayError, losses: int) -> None:
        """Wait before the next verifier is called; raises if none should be."""
        if not replica_lost(error):
            raise without_traceback(error) from error
        logger.warning("verifier lost: %s", type(error).__name__)
        if losses > MAX_LOSSES:
            raise Overloaded("several verifiers were lost during this answer; try again later") from error
        await asyncio.sleep(RETRY_AFTER * 4 ** (losses - 1))

    def _wire(self, received: GenerationState, serving: Serving, speculation: Speculation) -> DraftSessions:
        task = speculation.task if speculation.task in serving.tasks else None
        return DraftSessions(serving, received, self._config.draft.num_speculative_tokens, task)
