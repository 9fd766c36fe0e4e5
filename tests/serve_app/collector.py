"""A collector of OpenTelemetry, which takes spans by OTLP over HTTP and keeps them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

TRACES = "/v1/traces"


class Received(NamedTuple):
    """A span with its ids in hexadecimal, and the attributes of what sent it."""

    name: str
    trace: str
    id: str
    parent: str
    server: bool
    failed: bool
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    resource: dict[str, Any]

    @property
    def part(self) -> str:
        return str(self.resource["taskspec.part"])


class Collector:
    """`spans` are those received so far, `headers` those of the last request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Received] = []
        self.headers: dict[str, str] = {}

    def of(self, trace: str) -> list[Received]:
        """Those of one trace."""
        return [span for span in self.spans if span.trace == trace]

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            own = _attributes(resource.resource.attributes)
            self.spans += [_received(span, own) for scope in resource.scope_spans for span in scope.spans]


@contextmanager
def collector() -> Iterator[Collector]:
    """One on loopback, for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kept.headers = {name.lower(): value for name, value in self.headers.items()}
            if self.path == TRACES:
                kept.take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200 if self.path == TRACES else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept = Collector(f"http://127.0.0.1:{server.server_port}")
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield kept
        finally:
            server.shutdown()


def _received(span: Any, resource: dict[str, Any]) -> Received:
    return Received(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        server=span.kind == span.SPAN_KIND_SERVER,
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
        attributes=_attributes(span.attributes),
        events=[(event.name, _attributes(event.attributes)) for event in span.events],
        resource=resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return None if kind is None else getattr(value, kind)
