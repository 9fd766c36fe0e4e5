"""The deployment around `core.draft.drafter.Drafter`: the draft pool of one task, whose replicas serve one draft.

A draft session is a Serve request that lasts as long as the generation, so that Serve's routing, autoscaling, draining
and metrics see the true load. Its tokens do not pass through Serve but over ZeroMQ sockets.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from core.draft.drafter import Drafter
from core.draft.engine import DraftConfig
from core.model_names import locate
from core.text.vocabulary import same_id_map
from core.wire.messages import OpenSession
from serve_app.application_names import draft_key
from serve_app.config import ServiceConfig
from serve_app.deployments.models.draft_loading import draft_model, load_draft
from serve_app.deployments.telemetry.metrics import DRAFT_GAUGES, Metrics
from serve_app.deployments.telemetry.replica_log import log_into_replica
from serve_app.spans import Attributes, Headers, open_spans


class DraftPool:
    """A draft replica. On a CPU it imports no torch, and never transformers: it starts in seconds and stays small."""

    def __init__(self, config: ServiceConfig, task: str, directory: str | None) -> None:
        log_into_replica()
        self._spans = open_spans("draft")
        num_valid = same_id_map(locate(config.target.model), draft_model(config.draft, directory))
        limits = DraftConfig(max_sessions=config.draft.max_sessions)
        model = load_draft(config.draft, directory, config.target.model)
        self._drafter = Drafter(model, num_valid, limits, draft_key(task, directory))
        self._drafter.start()
        self._metrics = Metrics("draft", DRAFT_GAUGES)
        self._task = task

    async def session(self, opening: OpenSession, span_headers: Headers | None = None) -> AsyncIterator[None]:
        """Draft for one generation until the verifier ends it or is silent for too long, or the call is cancelled.

        `span_headers` tell the span of its request.
        """
        place: Attributes = {
            "taskspec.task": self._task,
            "taskspec.choice": opening.choice,
            "taskspec.epoch": opening.epoch,
        }
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        with self._spans.span("draft", span_headers, place):
            is_open = self._drafter.open(opening, lambda: loop.call_soon_threadsafe(over.set))
            try:
                await asyncio.wrap_future(is_open)
                yield None  # the caller's first item: the session is open
                await over.wait()
            finally:
                self._drafter.close(opening)

    async def counts(self) -> Counter[str]:
        """The counters of engine and wire, and the number of open sessions."""
        return await asyncio.wrap_future(self._drafter.counts())

    async def record_autoscaling_stats(self) -> dict[str, int]:
        """For `serve_app.deployments.deploy.draft_scaling`: the open sessions, and those that are asked for tokens."""
        counts = await self.counts()
        return {name: counts[name] for name in ("sessions", "asked_sessions")}

    async def check_health(self) -> None:
        """Serve replaces the replica if this raises, or hangs because the engine does."""
        self._metrics.export(await self.counts())

    def __del__(self) -> None:
        """Serve calls this once no session is left, before it ends the replica."""
        self._spans.close()
