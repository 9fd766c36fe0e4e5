"""Spans of requests, for OpenTelemetry: off unless its environment variables ask for them.

While they are off nothing of OpenTelemetry is imported. A span has names and numbers, never a prompt or an answer. What
this package calls a trace, an answer that is kept for training, is something else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points, version
from threading import Thread
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as RecordedSpan

SERVICE = "taskspec"  # the name of the service unless OTEL_SERVICE_NAME has another
PREFILL = "taskspec.prefill"  # a verifier has taken the prompt, whether or not it has pages for it yet
FIRST_TOKEN = "taskspec.first_token"
MOVE = "taskspec.move"  # the answer goes on with the draft of another task
FAILOVER = "taskspec.failover"  # its verifier is lost, and it goes on at another
EXPORTERS = "OTEL_TRACES_EXPORTER"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}  # entry points of exporters, by protocol
INSTALL = {"otlp_proto_http": "'taskspec[tracing]'", "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc"}
CLOSE_SECONDS = 2.0  # for the last spans of a replica to be sent

logger = logging.getLogger(__name__)

Headers = Mapping[str, str]
"""Those by which a span of another process is continued: `traceparent` and its like. Others may be among them."""
Attributes = Mapping[str, str | bool | int | float | Sequence[str]]


class Span:
    """An open span; without a `recorded` one of OpenTelemetry it does nothing."""

    def __init__(self, recorded: RecordedSpan | None = None, context: Context | None = None) -> None:
        self._recorded = recorded
        self._context = context

    @property
    def headers(self) -> Headers | None:
        """What a call that is part of this span takes along; None while spans are off."""
        if self._recorded is None:
            return None
        from opentelemetry import propagate

        headers: dict[str, str] = {}
        propagate.inject(headers, self._context)
        return headers

    @property
    def trace_id(self) -> str | None:
        """In hexadecimal, by which backends find it; None while spans are off."""
        return None if self._recorded is None else f"{self._recorded.get_span_context().trace_id:032x}"

    def note(self, attributes: Attributes) -> None:
        if self._recorded is not None:
            self._recorded.set_attributes(attributes)

    def note_event(self, name: str, attributes: Attributes | None = None) -> None:
        if self._recorded is not None:
            self._recorded.add_event(name, attributes)

    def fail(self, kind: str) -> None:
        """It ends with a failure of this kind. What an error says is never told, as it may be text of a client."""
        if self._recorded is not None:
            from opentelemetry.trace import StatusCode

            self._recorded.set_attribute("error.type", kind)
            self._recorded.set_status(StatusCode.ERROR)

    def end(self) -> None:
        if self._recorded is not None:
            self._recorded.end()


NOTHING = Span()


class Spans:
    """Those that one part of the service begins; off without a `provider`."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer(SERVICE, version(SERVICE))

    def begin(
        self, name: str, headers: Headers | None, attributes: Attributes | None = None, *, of_request: bool = False
    ) -> Span:
        """A span within that of the `headers`, if they have one: that of a whole request, or of work on it."""
        if self._tracer is None:
            return NOTHING
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind, set_span_in_context

        outer = propagate.extract(headers or {})
        kind = SpanKind.SERVER if of_request else SpanKind.INTERNAL
        recorded = self._tracer.start_span(name, outer, kind, attributes)
        return Span(recorded, set_span_in_context(recorded, outer))

    @contextmanager
    def span(self, name: str, headers: Headers | None, attributes: Attributes | None = None) -> Iterator[Span]:
        """One of work, which lasts as long as the block. A block that is cancelled has not failed."""
        span = self.begin(name, headers, attributes)
        try:
            yield span
        except Exception as error:
            span.fail(type(error).__name__)
            raise
        finally:
            span.end()

    def close(self) -> None:
        """Send what waits, for `CLOSE_SECONDS` at most: nothing may answer."""
        provider, self._provider = self._provider, None
        if provider is not None:
            closing = Thread(target=provider.shutdown, daemon=True)
            closing.start()
            closing.join(CLOSE_SECONDS)


def open_spans(part: str) -> Spans:
    """The spans that this part of the service begins in this process, as its environment wants them.

    A part serves without them where that cannot be: its node may have variables that whoever deployed never saw.
    """
    try:
        return _opened(part)
    except Exception as error:  # noqa: BLE001 - an exporter raises whatever it likes
        reason = str(error) if isinstance(error, ConfigError) else "a variable OTEL_* is refused"  # it may be a secret
        logger.error("no spans: %s: %s", type(error).__name__, reason)
        return Spans()


def _opened(part: str) -> Spans:
    exporters = [_exporter(name) for name in exporter_names(os.environ)]
    if not exporters:
        return Spans()
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    of_part = Resource({SERVICE_NAME: SERVICE, "service.version": version(SERVICE), "taskspec.part": part})
    resource = Resource.create().merge(of_part).merge(OTELResourceDetector().detect())  # what is merged last wins
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return Spans(provider)


def check() -> None:
    """Raises `ConfigError` if the environment asks for an exporter that cannot be had."""
    for name in exporter_names(os.environ):
        try:
            _exporter(name).shutdown()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"OpenTelemetry's exporter `{name}` refuses a variable OTEL_*: {error}") from error


def exporter_names(environment: Mapping[str, str]) -> list[str]:
    """The entry points of the exporters that the environment asks for; none while spans are off.

    By OpenTelemetry's own default they would be on. Here an endpoint or an exporter must be named.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    default = "otlp" if any(environment.get(name) for name in ENDPOINTS) else "none"
    names = [name.strip() for name in (environment.get(EXPORTERS) or default).split(",")]
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(PROTOCOL) or "http/protobuf"
    return [OTLP.get(protocol, protocol) if name == "otlp" else name for name in names if name not in ("none", "")]


def handed_on() -> dict[str, str]:
    """The variables of OpenTelemetry in this process that replicas on other nodes get.

    Those of headers have secrets, and Ray shows the environment of a replica in its logs. So a node has its own.
    """
    return {
        name: value for name, value in os.environ.items() if name.startswith("OTEL_") and not name.endswith("_HEADERS")
    }


def _exporter(name: str) -> Any:
    """The exporter of this entry point. It raises what it likes if a variable is wrong."""
    for entry in entry_points(group="opentelemetry_traces_exporter", name=name):
        return entry.load()()
    if name in INSTALL:
        others = ", or write OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" if name == OTLP["grpc"] else ""
        raise ConfigError(f"OpenTelemetry's OTLP exporter is not installed: pip install {INSTALL[name]}{others}")
    raise ConfigError(f"{EXPORTERS}, {PROTOCOL}: there is no exporter `{name}`; write otlp, console or none")
