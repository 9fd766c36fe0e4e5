"""What spans cost a request: the CPU time that is added where they are on, in turns with requests where they are off.

What the four parts of a service do for a request with spans is done in one process here, over the real HTTP
application, with a script in place of the target. All spans are sent to a collector within the measured time, and taken
there in the same process. So this is the upper end of what they cost. An answer of the shipped target says what share
that is.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx2 as httpx
import numpy as np

from core.confidence_intervals import Estimate, estimate
from core.generation import GenerationRequest
from serve_app.access.guarding import Access, guarded
from serve_app.config import Ingress
from serve_app.http.exchange import happened, span_headers
from serve_app.http.service import ChoiceRun, Speculation
from serve_app.spans import FIRST_TOKEN, MOVE, PREFILL, Spans, open_spans
from tests.bench import machine, output
from tests.serve_app.collector import Collector, collector
from tests.serve_app.engine_service import engine_service
from tests.serve_app.scripted import ScriptedService

PARTS = ("ingress", "router", "draft", "verifier")
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Tell a story about a river and a bridge, a market and a school."}]
BODY: dict[str, Any] = {"model": "org/toy", "messages": MESSAGES, "seed": 7}
HEADERS = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


class Spanned(ScriptedService):
    """Begins and ends for each answer what the parts of a service do, and says what happens, as the ingress does."""

    def __init__(self, spans: Mapping[str, Spans]) -> None:
        super().__init__()
        self._spans = spans

    async def generate(
        self, requests: list[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        with ExitStack() as work:
            with self._spans["router"].span("route", span_headers()) as route:
                route.note({"taskspec.task": "math", "taskspec.probability": 0.9})
            work.enter_context(self._spans["draft"].span("draft", span_headers(), {"taskspec.task": "math"}))
            verify = work.enter_context(self._spans["verifier"].span("verify", span_headers()))
            happened(PREFILL, {"taskspec.verifier": "tcp://127.0.0.1:1"})
            verify.note_event(PREFILL)
            happened(FIRST_TOKEN)
            verify.note_event(FIRST_TOKEN)
            happened(MOVE, {"taskspec.from": "math", "taskspec.to": "general"})
            async for run in super().generate(requests, speculation):
                yield run


class Cost(NamedTuple):
    """Seconds of CPU time that spans add to a request, those of one without, and how many spans were received."""

    added: Estimate
    without: float
    received: int


def client_of(service: ScriptedService, spans: Spans) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(guarded(service, Ingress(), Access.of(Ingress(), None), spans=spans))
    return httpx.AsyncClient(transport=transport, base_url="http://service", headers=HEADERS)


@contextmanager
def spans_of_parts(received: Collector) -> Iterator[dict[str, Spans]]:
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = received.url
    parts = {part: open_spans(part) for part in PARTS}
    del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    try:
        yield parts
    finally:
        for spans in parts.values():
            spans.close()


async def measure(turns: int, requests: int) -> Cost:
    """Over so many turns of so many requests each, without spans and with them."""
    off = {part: Spans() for part in PARTS}
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with collector() as received, spans_of_parts(received) as on:
        providers = [spans._provider for spans in on.values() if spans._provider is not None]
        clients = {
            with_spans: client_of(Spanned(all_), all_["ingress"]) for with_spans, all_ in ((True, on), (False, off))
        }
        for turn in range(-1, turns):
            for with_spans in (True, False) if turn % 2 else (False, True):
                began = time.process_time()
                for _ in range(requests):
                    (await clients[with_spans].post(CHAT, json=BODY)).raise_for_status()
                for provider in providers:
                    provider.force_flush()
                if turn >= 0:  # one warms up
                    seconds[with_spans].append((time.process_time() - began) / requests)
        added = np.array(seconds[True]) - np.array(seconds[False])
        return Cost(estimate(turns, lambda drawn: drawn @ added / turns), median(seconds[False]), len(received.spans))


async def answer_seconds(max_tokens: int, times: int) -> float:
    """The median time of an answer of the shipped target, without drafts and without spans."""
    seconds = []
    with engine_service("family:target", "hermes") as service:
        async with client_of(service, Spans()) as client:
            for _ in range(times):
                began = time.perf_counter()
                body = BODY | {"max_tokens": max_tokens, "ignore_eos": True}
                (await client.post(CHAT, json=body)).raise_for_status()
                seconds.append(time.perf_counter() - began)
    return median(seconds)


def table(cost: Cost, answer_s: float) -> str:
    added = "{:.2f} ({:.2f} to {:.2f})".format(*(1000 * value for value in cost.added))
    share = "{:.2f} % ({:.2f} to {:.2f})".format(*(100 * value / answer_s for value in cost.added))
    rows = [
        ("CPU time of the HTTP application a request, without spans, ms", f"{1000 * cost.without:.2f}"),
        ("added by four spans, their events and their sending, ms (95 %)", added),
        ("an answer of the shipped target, ms", f"{1000 * answer_s:.0f}"),
        ("added, of that answer (95 %)", share),
    ]
    lines = [*output.header(["spans", ""]), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([*lines, "", machine.line(), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--requests", type=int, default=50, help="of each turn")
    parser.add_argument("--max-tokens", type=int, default=64, help="of an answer of the target")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/span_cost"))
    chosen = parser.parse_args()
    cost = asyncio.run(measure(chosen.turns, chosen.requests))
    answer_s = asyncio.run(answer_seconds(chosen.max_tokens, 12))
    figures = {"added_s": cost.added._asdict(), "without_s": cost.without, "answer_s": answer_s}
    output.save(chosen, "span_cost", table(cost, answer_s), figures, spans=cost.received)


if __name__ == "__main__":
    main()
