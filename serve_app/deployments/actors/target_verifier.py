"""The deployment around `core.verify.verifier.Verifier`, which holds the target.

A generation is one streaming Serve call per prompt; cancelling the call frees its sessions at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import Future
from functools import partial

import ray

from core.generation import GenerationRequest, Run
from core.model_names import locate
from core.text.tokenizer import load_tokenizer
from core.verify.engine import VerifyConfig
from core.verify.verifier import Opened, Verifier
from serve_app.config import ServiceConfig
from serve_app.deployments.answer.started import Started, declined_drafts
from serve_app.deployments.models.target_loading import load_target
from serve_app.deployments.telemetry.metrics import VERIFIER_GAUGES, Metrics
from serve_app.deployments.telemetry.replica_log import log_into_replica
from serve_app.deployments.telemetry.vllm_names import EngineUnderVllmNames
from serve_app.spans import FIRST_TOKEN, PREFILL, Headers, open_spans


class TargetVerifier:
    """A target replica. The engine has a thread of its own; the event loop only passes runs on."""

    def __init__(self, config: ServiceConfig) -> None:
        log_into_replica()
        self._spans = open_spans("verifier")
        target = config.target
        limits = VerifyConfig(
            max_sessions=target.max_sessions,
            num_speculative_tokens=config.draft.num_speculative_tokens,
            prefill_chunk=target.prefill_chunk,
            lookup=config.lookup.sources,
        )
        self._metrics = Metrics("verifier", VERIFIER_GAUGES)
        self._under_vllm_names = EngineUnderVllmNames(config.name)
        tokenizer = load_tokenizer(locate(target.model))
        host = ray.util.get_node_ip_address()
        self._verifier = Verifier(partial(load_target, target), tokenizer, limits, host)
        self._verifier.start()

    async def generate(
        self, choices: list[GenerationRequest], span_headers: Headers | None = None
    ) -> AsyncIterator[Started | tuple[int, Run]]:
        """First `Started`, then (choice, run) as passes commit them, until every choice has finished.

        `choice` is that of the request, whose span `span_headers` tell.
        """
        with self._spans.span("verify", span_headers) as span:
            span.note({"gen_ai.usage.input_tokens": choices[0].prompt_length})
            span.note({"gen_ai.request.choice.count": len(choices)})
            loop = asyncio.get_running_loop()
            runs: asyncio.Queue[tuple[int, Run | BaseException]] = asyncio.Queue()
            if grammar := choices[0].params.grammar:
                await asyncio.to_thread(self._verifier.prepare, grammar)
            opening = self._verifier.open(
                choices, lambda index, run: loop.call_soon_threadsafe(runs.put_nowait, (choices[index].choice, run))
            )
            try:
                opened: Opened = await asyncio.wrap_future(opening)
                span.note_event(PREFILL)
                yield self._started(opened)
                unfinished, num_tokens = len(choices), 0
                while unfinished:
                    choice, run = await runs.get()
                    if isinstance(run, BaseException):
                        raise run
                    if not num_tokens:
                        span.note_event(FIRST_TOKEN)
                    num_tokens += len(run.tokens)
                    unfinished -= run.finish_reason is not None
                    yield choice, run
                span.note({"gen_ai.usage.output_tokens": num_tokens})
            finally:
                opening.add_done_callback(self._close)

    def _started(self, opened: Opened) -> Started:
        declined, declines_all = declined_drafts(opened.declined)
        return Started(tuple(opened.sessions), self._verifier.address, declined, declines_all)

    def _close(self, opening: Future[Opened]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._verifier.close(opening.result().sessions)

    async def counts(self) -> Counter[str]:
        """See `Verifier.counts`."""
        return await asyncio.wrap_future(self._verifier.counts())

    async def check_health(self) -> None:
        """Serve replaces the replica if this raises, or hangs because the engine does."""
        counts = await self.counts()
        self._metrics.export(counts)
        self._under_vllm_names.export(counts)

    def __del__(self) -> None:
        """Serve calls this once no generation is left, before it ends the replica."""
        self._spans.close()
