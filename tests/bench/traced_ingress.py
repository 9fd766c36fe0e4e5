"""An ingress that notes when what happened for a generation: the service's own, beside it in a replica of its own."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from core.generation import GenerationRequest
from core.wire.messages import OpenSession
from serve_app.deployments.actors.ingress import SpeculativeIngress
from serve_app.deployments.answer.draft_sessions import DraftSessions
from serve_app.deployments.answer.generation_state import GenerationState
from serve_app.deployments.answer.serving import Serving
from serve_app.deployments.models.served_models import ServedModels
from serve_app.http.service import ChoiceRun, Speculation
from tests.bench.moments import ASKED, DRAFT, FIRST, OPEN, ROUTED, ROUTER, SECOND, Noted


class TracedIngress(SpeculativeIngress):
    """Takes one request at a time."""

    noted: Noted

    async def generate(
        self, requests: list[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        self.noted = {}
        self._note(ASKED)
        async with aclosing(super().generate(requests, speculation)) as runs:
            async for run in runs:
                self._note(SECOND if FIRST in self.noted else FIRST)
                yield run

    def _wire(self, received: GenerationState, serving: Serving, speculation: Speculation) -> DraftSessions:
        return super()._wire(received, _NotingServing(serving.served, self), speculation)

    async def last(self) -> Noted:
        """Of the last generation."""
        return self.noted

    def _note(self, what: str) -> None:
        self.noted.setdefault(what, time.monotonic())


class _NotingServing(Serving):
    """A bundle whose calls are noted."""

    def __init__(self, served: ServedModels, ingress: TracedIngress) -> None:
        super().__init__(served, ingress._tallies)
        self._ingress = ingress

    async def route(self, tokens: Sequence[int]) -> Mapping[str, float]:
        self._ingress._note(ROUTER)
        chances = await super().route(tokens)
        self._ingress._note(ROUTED)
        return chances

    def open_draft(self, task: str, opened: OpenSession) -> Any:
        self._ingress._note(DRAFT)
        return _Noting(self._ingress, super().open_draft(task, opened))


class _Noting:
    """A draft's stream, of which the first item is noted."""

    def __init__(self, ingress: TracedIngress, stream: Any) -> None:
        self._ingress = ingress
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[None]:
        async for item in self._stream:
            self._ingress._note(OPEN)
            yield item

    def cancel(self) -> None:
        self._stream.cancel()
