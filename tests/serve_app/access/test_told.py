"""What the log and the span tell of a request: names and figures, and no text of a client or of the model."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from ray._common.formatters import JSONFormatter

from serve_app.access.guarding import Access, guarded
from serve_app.access.key_file import add
from serve_app.access.keys import Keys
from serve_app.access.middleware import access_log
from serve_app.config import ANY_NAME, Ingress
from serve_app.http.exchange import Exchange, failed, happened, span_headers
from serve_app.http.handled import GONE
from serve_app.http.service import Overloaded
from serve_app.spans import FIRST_TOKEN, MOVE, PREFILL, Spans
from tests.serve_app.scripted import ScriptedService, tokens_of

CHAT, COMPLETIONS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
CALLER, TRACE = "00f067aa0ba902b7", "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
SECRET = "the answer Jane Doe wants"
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 20, "stop": ["Jane"], "user": "Jane"},
    COMPLETIONS: {"prompt": SECRET, "max_tokens": 20},
    MESSAGES: {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 20},
    RESPONSES: {"input": SECRET, "max_output_tokens": 20},
}


class Told:
    """The spans of a service, and the lines of its log as Serve writes them in JSON."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.lines: list[str] = []

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def facts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def client(self, service: ScriptedService, keys: Keys | None = None, *, spans: bool = True) -> httpx.AsyncClient:
        app = guarded(service, Ingress(), Access.of(Ingress(), keys), spans=Spans(self.provider if spans else None))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://service")


@pytest.fixture
def told() -> Iterator[Told]:
    told, formatter = Told(), JSONFormatter()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.lines.append(formatter.format(record))

    handler, before = Handler(), access_log.level
    access_log.addHandler(handler)
    access_log.setLevel(logging.INFO)
    yield told
    access_log.removeHandler(handler)
    access_log.setLevel(before)


class Telling(ScriptedService):
    """Says what happens to an answer, as the ingress does, and hands its span on."""

    def __init__(self) -> None:
        super().__init__()
        self.handed: list[Any] = []
        self.passes = 0

        async def step() -> None:
            if not self.passes:
                self.handed.append(span_headers())
                happened(PREFILL, {"taskspec.verifier": "tcp://one:1"})
                happened(FIRST_TOKEN)
            self.passes += 1
            if self.passes == 3:
                happened(MOVE, {"taskspec.from": "math", "taskspec.to": "general"})

        self.step = step


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_has_one_span_within_its_callers_and_one_line(told: Told, path: str, *, stream: bool) -> None:
    service = Telling()
    async with told.client(service) as client:
        body = {"model": "org/toy", "stream": stream, "temperature": 0.5, **ASKED[path]}
        answer = await client.post(path, json=body, headers={**PARENT, "x-request-id": "mine-1"})
    assert answer.status_code == 200, answer.text
    [span], [facts] = told.spans, told.facts
    assert span.context is not None
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, CALLER)
    assert (span.kind, span.status.status_code) == (SpanKind.SERVER, StatusCode.UNSET)
    assert span.name == f"{'text_completion' if path == COMPLETIONS else 'chat'} org/toy"
    assert [event.name for event in span.events] == [PREFILL, FIRST_TOKEN, MOVE]
    tokens = len(tokens_of("the answer is forty-two. END of the story")) + 1
    attributes = dict(span.attributes or {})
    assert (
        attributes
        | {
            "gen_ai.provider.name": "taskspec",
            "gen_ai.request.model": "org/toy",
            "gen_ai.request.stream": stream,
            "gen_ai.request.temperature": 0.5,
            "gen_ai.usage.input_tokens": service.asked[0].prompt_length,
            "gen_ai.usage.output_tokens": min(tokens, 20),
            "http.response.status_code": 200,
            "taskspec.request_id": "mine-1",
        }
        == attributes
    )
    assert attributes["gen_ai.response.finish_reasons"] in (("stop",), ("length",))
    assert 0 < attributes["taskspec.accepted_tokens"] < attributes["taskspec.proposed_tokens"]
    [handed] = service.handed
    assert handed["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert (
        facts
        | {
            "request_id": "mine-1",
            "method": "POST",
            "path": path,
            "status": 200,
            "key": None,
            "model": "org/toy",
            "task": "general",
            "prompt_tokens": attributes["gen_ai.usage.input_tokens"],
            "completion_tokens": attributes["gen_ai.usage.output_tokens"],
            "proposed_tokens": attributes["taskspec.proposed_tokens"],
            "accepted_tokens": attributes["taskspec.accepted_tokens"],
            "trace_id": TRACE,
        }
        == facts
    )
    assert 0 < facts["queue_s"] <= facts["first_token_s"] < facts["total_s"] < 60
    written = span.to_json() + told.lines[0]
    assert not [text for text in ("Jane", "forty", "Doe") if text in written]


async def test_without_spans_the_line_is_the_same_but_for_the_trace_and_nothing_is_handed_on(told: Told) -> None:
    service = Telling()
    async with told.client(service, spans=False) as client:
        await client.post(CHAT, json={"model": "org/toy", **ASKED[CHAT]}, headers=PARENT)
    assert (told.spans, service.handed) == ([], [None])
    [facts] = told.facts
    assert "trace_id" not in facts
    assert {"queue_s", "first_token_s", "total_s", "completion_tokens"} <= facts.keys()


async def test_only_requests_for_answers_have_spans(told: Told, tmp_path: Path) -> None:
    key = add(tmp_path / "keys", "alice")
    async with told.client(ScriptedService(), Keys(tmp_path / "keys", {})) as client:
        for path in ("/health", "/v1/models", "/metrics", CHAT):
            await client.get(path, headers={"x-api-key": key})
        assert told.spans == []
        await client.post("/tokenize", json={"prompt": "a"}, headers={"x-api-key": key})
        assert told.spans == []
        assert (await client.post(CHAT, json={})).status_code == 401
        assert (await client.post(CHAT, json={}, headers={"x-api-key": key})).status_code == 400
    refused = told.spans
    assert [dict(span.attributes or {})["http.response.status_code"] for span in refused] == [401, 400]
    assert {span.status.status_code for span in refused} == {StatusCode.UNSET}, "the client's fault, not the service's"
    assert [(facts["status"], facts["key"]) for facts in told.facts[-2:]] == [(401, None), (400, "alice")]
    assert all("model" not in facts and "queue_s" not in facts for facts in told.facts)


@pytest.mark.parametrize(
    ("failure", "after", "stream", "status", "error"),
    [
        (RuntimeError("Jane"), 0, False, 500, "RuntimeError"),
        (ValueError("Jane"), 2, True, 200, "ValueError"),
        (Overloaded("Jane"), 0, True, 503, "503"),
    ],
)
async def test_an_answer_that_fails_says_of_what_kind(
    told: Told, failure: Exception, after: int, *, stream: bool, status: int, error: str
) -> None:
    service = ScriptedService()
    service.failure, service.fails_after = failure, after
    async with told.client(service) as client:
        answer = await client.post(CHAT, json={"model": "org/toy", "stream": stream, **ASKED[CHAT]})
    assert answer.status_code == status
    [span], [facts] = told.spans, told.facts
    assert (span.status.status_code, dict(span.attributes or {})["error.type"]) == (StatusCode.ERROR, error)
    assert (facts["status"], facts.get("error")) == (status, None if error == "503" else error)
    assert "Jane" not in span.to_json() + told.lines[0]


async def test_a_client_that_leaves_before_there_is_an_answer_is_no_failure(told: Told) -> None:
    app = guarded(ScriptedService(), Ingress(), Access.of(Ingress(), None), spans=Spans(told.provider))

    body = json.dumps({"model": "org/toy", **ASKED[CHAT]}).encode()
    messages = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(_message: Any) -> None: ...

    scope = {"type": "http", "method": "POST", "path": CHAT, "query_string": b""}
    scope["headers"] = [(b"content-type", b"application/json")]
    await app(scope, receive, send)
    [span], [facts] = told.spans, told.facts
    assert span.status.status_code == StatusCode.UNSET
    assert "http.response.status_code" not in dict(span.attributes or {})
    assert facts["status"] == GONE


async def test_the_name_of_the_span_is_the_services_whatever_clients_call_the_model(told: Told) -> None:
    service = ScriptedService()
    service.aliases = ANY_NAME
    async with told.client(service) as client:
        await client.post(CHAT, json={"model": "theirs", "n": 2, **ASKED[CHAT]})
    [span] = told.spans
    attributes = dict(span.attributes or {})
    assert (span.name, attributes["gen_ai.request.model"]) == ("chat org/toy", "theirs")
    assert (attributes["gen_ai.request.choice.count"], told.facts[0]["model"]) == (2, "theirs")


def test_what_happens_outside_of_a_request_is_told_to_nobody() -> None:
    happened(PREFILL)
    failed(RuntimeError())
    assert span_headers() is None
    times = iter([1.0, 3.0, 4.0, 9.0])
    exchange = Exchange(clock=lambda: next(times))
    with exchange.current():
        happened(PREFILL)
        happened(FIRST_TOKEN)
    happened(MOVE)
    assert exchange.end(200) == 8.0
    assert exchange.facts() == {"queue_s": 2.0, "first_token_s": 3.0, "total_s": 8.0}
