"""The deployment clients speak to: HTTP in front, and behind it the wiring of verifier, router and draft pools.

It alone holds the handles. Per prompt it makes one call to the verifier, one to the router and one per choice to a
draft pool, whether the answer takes five rounds or five hundred; `counts` says how many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from core.generation import GenerationRequest
from core.messages import OpenSession
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.tokenizer import load_tokenizer
from serve_app.config import GENERAL, ServiceConfig, locate, pool_application
from serve_app.http import create_app
from serve_app.service import ChoiceRun, Overloaded, Speculation
from serve_app.wiring import Wiring

Handle = DeploymentHandle[Any]

logger = logging.getLogger(__name__)


@serve.ingress()
class SpeculativeIngress:
    """An ingress replica; implements `serve_app.service.Service`."""

    def __init__(self, config: ServiceConfig, verifier: Handle, router: Handle | None) -> None:
        target = locate(config.target.model)
        self.tokenizer = load_tokenizer(target)
        self.model_name = config.name
        self.context = ModelConfig.load(resolve(target)).context
        self.vocab_size = self.tokenizer.num_valid
        self.tasks = tuple(config.pools)
        self.max_choices = config.ingress.max_choices
        self._config = config
        self._verifier = verifier
        self._router = router
        self._pools: dict[str, Handle] = {}
        self._counts: Counter[str] = Counter()

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_app(self)

    def describe(self) -> dict[str, object]:
        """Facts for /v1/models."""
        target, draft = self._config.target, self._config.draft
        return {
            "target": target.model,
            "draft": draft.model,
            "dtype": target.dtype,
            "numerics": "exact" if target.device == "cpu" else "fast",  # other devices' kernels are not row-invariant
            "context": self.context,
            "tasks": list(self.tasks),
            "num_speculative_tokens": draft.num_speculative_tokens,
        }

    async def healthy(self) -> bool:
        """Whether the verifier answers."""
        try:
            await asyncio.wait_for(self._verifier.counts.remote(), timeout=5.0)
        except (RayError, RayServeException, TimeoutError):
            return False
        return True

    def counts(self) -> Counter[str]:
        """Generations and the Serve calls made for them."""
        return self._counts

    async def generate(
        self, requests: list[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        """See `Service.generate`."""
        self._counts["generations"] += 1
        self._counts["verifier_calls"] += 1
        runs = cast(DeploymentResponseGenerator[Any], self._verifier.options(stream=True).generate.remote(requests))
        wiring = self._wire(requests, speculation) if speculation.enabled else None
        try:
            started = await anext(runs)
            if wiring is not None:
                wiring.start(started)
            async for choice, run in runs:
                if wiring is not None:
                    wiring.observe(choice, run)
                yield ChoiceRun(choice, run, wiring.task if wiring is not None else GENERAL)
        except BackPressureError as error:
            raise Overloaded("every verifier is busy and its queue is full; try again shortly") from error
        finally:
            runs.cancel()
            if wiring is not None:
                wiring.close()

    async def route(self, tokens: Sequence[int]) -> str:
        """The task of a prompt; `general` where the router abstains, fails, is late or knows a task without a pool."""
        if self._router is None or self._config.router is None:
            return GENERAL
        self._counts["router_calls"] += 1
        try:
            prior = await asyncio.wait_for(self._router.route.remote(tokens), self._config.router.timeout_s)
        except (RayError, RayServeException, TimeoutError) as error:
            logger.warning("router: %s; taking %s", type(error).__name__, GENERAL)
            return GENERAL
        task = max(prior, key=lambda name: prior[name])
        return task if task in self.tasks else GENERAL

    def open_draft(self, task: str, opened: OpenSession) -> DeploymentResponseGenerator[None]:
        """Reserve a draft replica of the task's pool and start a session on it."""
        self._counts["draft_calls"] += 1
        if task not in self._pools:
            handle = serve.get_deployment_handle("DraftPool", pool_application(task))
            self._pools[task] = handle.options(stream=True)
        return cast(DeploymentResponseGenerator[None], self._pools[task].session.remote(opened))

    def _wire(self, requests: list[GenerationRequest], speculation: Speculation) -> Wiring:
        return Wiring(self, requests, self._config.draft.num_speculative_tokens, speculation.task)
