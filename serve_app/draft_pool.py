"""The deployment around `core.drafter.Drafter`: one application per task, its replicas all serving one draft.

A draft session is an ongoing Serve request for as long as the generation lasts, so Serve's routing, autoscaling,
draining and metrics see the true load; its tokens travel on the wire.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from core.draft_engine import DraftConfig
from core.drafter import Drafter
from core.family import locate
from core.id_map import same_id_map
from core.messages import OpenSession
from core.model.base import Model
from serve_app.config import ServiceConfig, draft_label
from serve_app.loading import draft_model, load_draft
from serve_app.metrics import Metrics


class DraftPool:
    """A draft replica. Imports neither transformers nor peft: it starts in seconds and stays small."""

    def __init__(self, config: ServiceConfig, task: str, directory: str | None) -> None:
        num_valid = same_id_map(locate(config.target.model), draft_model(config.draft, directory))
        limits = DraftConfig(max_sessions=config.draft.max_sessions)
        self._drafter = Drafter(self._model(config, directory), num_valid, limits, draft_label(task, directory))
        self._drafter.start()
        self._metrics = Metrics("draft")

    def _model(self, config: ServiceConfig, directory: str | None) -> Model:
        return load_draft(config.draft, directory)

    async def session(self, opened: OpenSession) -> AsyncIterator[None]:
        """Draft for one generation until the verifier ends it, falls silent, or the call is cancelled."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        opening = self._drafter.open(opened, lambda: loop.call_soon_threadsafe(over.set))
        try:
            await asyncio.wrap_future(opening)
            yield None  # the caller's first item: the session is open
            await over.wait()
        finally:
            self._drafter.close(opened)

    async def counts(self) -> Counter[str]:
        """What engine and wire have counted, and the sessions open now."""
        return await asyncio.wrap_future(self._drafter.counts())

    async def check_health(self) -> None:
        """Serve restarts the replica when this raises, or takes too long because the engine hangs."""
        self._metrics.tell(await self.counts())
