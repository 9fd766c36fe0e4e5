"""The deployment clients speak to: HTTP in front, and behind it the wiring of verifier, router and draft pools.

It alone holds the handles. Per prompt it makes one call to the verifier, one to the router and at most one per choice
to a draft pool, whether the answer takes five rounds or five hundred; `counts` says how many.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from core.family import locate
from core.generation import GenerationRequest
from core.messages import OpenSession
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.tokenizer import load_tokenizer
from serve_app.bundled import Served
from serve_app.calls import hang_up, replica_lost
from serve_app.config import GENERAL, pool_application
from serve_app.http import create_app
from serve_app.metrics import Metrics
from serve_app.openai.cadence import Cadence
from serve_app.received import Received
from serve_app.service import ChoiceRun, Overloaded, Speculation
from serve_app.target_verifier import Started
from serve_app.wiring import Wiring

Handle = DeploymentHandle[Any]

logger = logging.getLogger(__name__)

LATELY = 1.0  # seconds
PATIENCE = 5.0  # seconds in which a busy verifier must be heard of
MAX_LOSSES = 3  # verifiers that an answer may lose: one that is the death of all it meets must end
RETRY_AFTER = 0.2  # seconds, four times as long after each loss


@serve.ingress()
class SpeculativeIngress:
    """An ingress replica; implements `serve_app.service.Service`."""

    def __init__(self, served: Served, verifier: Handle, router: Handle | None) -> None:
        config = served.config
        target = locate(config.target.model)
        self.tokenizer = load_tokenizer(target)
        self.model_name = config.name
        self.context = ModelConfig.load(resolve(target)).context
        self.vocab_size = self.tokenizer.num_valid
        self.tasks = tuple(served.drafts)
        self.max_choices = min(config.ingress.max_choices, config.target.max_sessions)
        self._config = config
        self._bundle = served.version
        self._verifier = verifier
        self._router = router
        self._pools: dict[str, Handle] = {}
        self._counts: Counter[str] = Counter()
        self._metrics = Metrics("ingress", held=frozenset())
        self._heard_at = -math.inf  # when a verifier last sent a run
        self.crowded = False  # whether the last that began an answer wanted no drafts

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_app(self, Cadence(self._config.ingress.stream_interval_s))

    def describe(self) -> dict[str, object]:
        """Facts for /v1/models."""
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
        """Whether a verifier answers; where all are so busy that a call waits or is turned away, their runs tell."""
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
        """False where it is too busy to; raises where none is there to answer."""
        try:
            await asyncio.wait_for(self._verifier.counts.remote(), timeout=LATELY)
        except (BackPressureError, TimeoutError):
            return False
        return True

    def counts(self) -> Counter[str]:
        """Generations, the Serve calls made for them, and the sessions that went without a draft."""
        return self._counts

    async def check_health(self) -> None:
        """Nothing here can be ill while it answers."""
        self._metrics.tell(self._counts)

    async def generate(
        self, requests: list[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        """See `Service.generate`. Where a verifier is lost, another one goes on from what has arrived."""
        self._counts["generations"] += 1
        received = Received(requests)
        wiring = self._wire(received, speculation) if speculation.enabled else None
        losses = 0
        try:
            while received.unfinished:
                try:
                    async with aclosing(self._verify(received, wiring)) as runs:
                        async for run in runs:
                            yield run
                    return
                except RayError as error:
                    losses += 1
                    await self._pause(error, losses)
                except BackPressureError:
                    if not losses:
                        raise
                    await asyncio.sleep(RETRY_AFTER)  # it has been let in once and will not be turned away now
        except BackPressureError as error:
            raise Overloaded("every verifier is busy and its queue is full; try again shortly") from error
        except DeploymentUnavailableError as error:
            raise Overloaded("no verifier is running; try again later") from error
        finally:
            if wiring is not None:
                wiring.close()

    async def _verify(self, received: Received, wiring: Wiring | None) -> AsyncGenerator[ChoiceRun, None]:
        """The runs that one verifier commits for the choices that are not finished."""
        self._counts["verifier_calls"] += 1
        choices = received.unfinished
        verifier = self._verifier.options(stream=True)
        stream = cast(
            DeploymentResponseGenerator[Any], verifier.generate.remote([received.request(choice) for choice in choices])
        )
        try:
            started = await anext(stream)
            self._heard_at = time.monotonic()
            self.crowded = started.crowded
            if wiring is not None:
                wiring.start(started, choices)
            async for index, run in stream:
                self._heard_at = time.monotonic()
                received.add(choices[index], run)
                if wiring is not None and run.finish_reason is not None:
                    wiring.end(choices[index])
                yield ChoiceRun(choices[index], run, wiring.task if wiring is not None else GENERAL)
        finally:
            hang_up(stream)
            if wiring is not None:
                wiring.stop()

    async def _pause(self, error: RayError, losses: int) -> None:
        """Before another verifier is asked; raises where none should be."""
        if not replica_lost(error):
            raise error
        logger.warning("verifier lost: %s", type(error).__name__)
        if losses > MAX_LOSSES:
            raise Overloaded("the verifiers of this answer were lost one after another") from error
        await asyncio.sleep(RETRY_AFTER * 4 ** (losses - 1))

    async def route(self, tokens: Sequence[int]) -> str:
        """The task of a prompt; `general` where the router abstains, fails, is late or knows a task without a pool."""
        if self._router is None:
            return GENERAL
        self._counts["router_calls"] += 1
        try:
            prior = await asyncio.wait_for(self._router.route.remote(tokens), self._config.router.timeout_s)
        except (RayError, RayServeException, TimeoutError) as error:
            logger.warning("router: %s; taking %s", type(error).__name__, GENERAL)
            return GENERAL
        task = max(prior, key=lambda name: prior[name])
        return task if task in self.tasks else GENERAL

    def spares(self, task: str, started: Started, session: int) -> bool:
        """Whether a session just started goes without a draft: the verifier hardly ever wants any of this task's."""
        spared = started.spares(session, pool_application(task))
        self._counts["drafts_spared"] += spared
        return spared

    def open_draft(self, task: str, opened: OpenSession) -> DeploymentResponseGenerator[None]:
        """Reserve a draft replica of the task's pool and start a session on it."""
        self._counts["draft_calls"] += 1
        if task not in self._pools:
            # serve.get_deployment_handle would block on the controller, and raise where the pool is not there (yet)
            handle: Handle = DeploymentHandle("DraftPool", pool_application(task))
            self._pools[task] = handle.options(stream=True)
        return cast(DeploymentResponseGenerator[None], self._pools[task].session.remote(opened))

    def _wire(self, received: Received, speculation: Speculation) -> Wiring:
        return Wiring(self, received, self._config.draft.num_speculative_tokens, speculation.task)
