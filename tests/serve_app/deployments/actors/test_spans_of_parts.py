"""The span of a request goes on in every part that works on it: real actors in this process, with no Ray between."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest
import ray
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from core.generation import GenerationRequest, Run
from core.sampling.params import SamplingParams
from core.wire.messages import OpenSession
from serve_app.config import load_config
from serve_app.deployments.actors import draft_pool, target_verifier, task_router
from serve_app.deployments.answer.started import Started
from serve_app.deployments.models.served_models import ServedModels, with_bundle
from serve_app.spans import FIRST_TOKEN, PREFILL, Spans
from tests.serve_app.span_events import HANDED

LENGTH = 12
PARAMS = SamplingParams(seed=7, max_tokens=LENGTH, logit_bias={2: -100})  # no end before


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    for module in (draft_pool, target_verifier, task_router):
        monkeypatch.setattr(module, "open_spans", lambda _part: Spans(provider))
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    return kept


@pytest.fixture
def served() -> ServedModels:
    family = load_config("family")
    return with_bundle(family.model_copy(update={"target": family.target.model_copy(update={"decoder": "torch"})}))


async def test_a_request_goes_on_in_verifier_draft_and_router(
    exporter: InMemorySpanExporter, served: ServedModels
) -> None:
    assert served.router is not None
    task = next(iter(served.drafts))
    request = GenerationRequest(tokens=tuple(range(5, 25)), prompt_length=20, params=PARAMS, always_draft=True)
    router = task_router.TaskRouter(served.router)
    chances = router.route(request.tokens, HANDED)
    verifier: Any = target_verifier.TargetVerifier(served.config)
    pool: Any = draft_pool.DraftPool(served.config, task, served.drafts[task])
    try:
        async with aclosing(verifier.generate([request], HANDED)) as items:
            started: Started = await anext(items)
            opening = OpenSession(
                session=started.sessions[0],
                epoch=0,
                verifier=started.verifier,
                tokens=request.tokens,
                prompt_length=20,
                params=PARAMS,
                choice=0,
                num_speculative_tokens=4,
            )
            async with aclosing(pool.session(opening, HANDED)) as session:
                await anext(session)
                runs: list[Run] = [run async for _, run in items]
    finally:
        verifier._verifier.stop()
        pool._drafter.stop()
    assert sum(len(run.tokens) for run in runs) == LENGTH
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"route", "verify", "draft"}
    assert {headers_of(span) for span in spans.values()} == {HANDED["traceparent"]}
    assert {span.kind for span in spans.values()} == {SpanKind.INTERNAL}
    routed = max(chances, key=lambda name: chances[name])
    assert spans["route"].attributes == {"taskspec.task": routed, "taskspec.probability": chances[routed]}
    assert spans["draft"].attributes == {"taskspec.task": task, "taskspec.choice": 0, "taskspec.epoch": 0}
    counts = {"gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": LENGTH, "gen_ai.request.choice.count": 1}
    assert spans["verify"].attributes == counts
    assert [event.name for event in spans["verify"].events] == [PREFILL, FIRST_TOKEN]


def headers_of(span: ReadableSpan) -> str:
    """The `traceparent` of the span around it."""
    assert span.parent is not None
    return f"00-{span.parent.trace_id:032x}-{span.parent.span_id:016x}-01"
