"""Spans are off until OpenTelemetry's variables ask for them; then they reach a collector, each within its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from threading import Event
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from ray.serve._private.build_app import build_app

from core.errors import ConfigError
from serve_app import spans
from serve_app.cli.main import main
from serve_app.config import load_config
from serve_app.deployments.deploy.applications import targets
from serve_app.deployments.models.served_models import ServedModels
from serve_app.spans import exporter_names, open_spans
from tests.serve_app.collector import Received, collector

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HTTP = "otlp_proto_http"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in spans.handed_on():
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, []),
        ({"OTEL_SERVICE_NAME": "mine", "OTEL_TRACES_SAMPLER": "always_on"}, []),
        ({ENDPOINT: "http://collector:4318"}, [HTTP]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, [HTTP]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, [HTTP]),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
        (
            {
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            [HTTP],
        ),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", HTTP]),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, []),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": ""}, [HTTP]),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "TRUE"}, []),
    ],
)
def test_the_standard_variables_turn_spans_on(environment: dict[str, str], names: list[str]) -> None:
    assert exporter_names(environment) == names


def test_while_they_are_off_nothing_of_opentelemetry_is_imported() -> None:
    program = """
import sys
from serve_app.spans import check, open_spans
check()
own = open_spans("ingress")
span = own.begin("chat", {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}, of_request=True)
with own.span("route", span.headers) as inner:
    inner.note({"task": "math"})
    inner.note_event("first")
span.fail("500")
span.end()
own.close()
assert span.headers is None and span.trace_id is None
sys.exit(" ".join(name for name in sys.modules if name.startswith("opentelemetry")) or None)
"""
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize(
    ("protocol", "install"),
    [
        ("http/protobuf", r"pip install 'taskspec\[tracing\]'$"),
        ("grpc", "pip install opentelemetry-exporter-otlp-proto-grpc, or write OTEL_EXPORTER_OTLP_PROTOCOL=http/"),
    ],
)
def test_an_exporter_that_is_not_installed_is_told_and_a_replica_serves_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, protocol: str, install: str
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setattr(spans, "entry_points", lambda **_: ())
    with pytest.raises(ConfigError, match=install):
        spans.check()
    assert open_spans("verifier").begin("verify", None) is spans.NOTHING
    assert "no spans: ConfigError" in caplog.text


def test_a_variable_that_an_exporter_refuses_is_told_and_a_replica_serves_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://collector:4318")

    def refuse() -> None:
        raise ValueError("OTEL_EXPORTER_OTLP_TIMEOUT: 10s")

    monkeypatch.setattr(spans, "entry_points", lambda **_: [SimpleNamespace(load=lambda: refuse)])
    with pytest.raises(ConfigError, match="refuses a variable"):
        spans.check()
    assert open_spans("verifier").begin("verify", None) is spans.NOTHING
    assert "no spans: ValueError" in caplog.text


def test_an_exporter_that_does_not_exist_ends_the_command_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "jaeger")
    monkeypatch.setattr(sys, "argv", ["taskspec", "serve"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert (out, "no exporter `jaeger`; write otlp, console or none" in err) == ("", True)


def test_spans_of_several_parts_are_one_trace_and_reach_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    caller, trace = "00f067aa0ba902b7", "4bf92f3577b34da6a3ce929d0e0e4736"
    with collector() as received:
        monkeypatch.setenv(ENDPOINT, received.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        ingress, verifier = open_spans("ingress"), open_spans("verifier")
        headers = {"traceparent": f"00-{trace}-{caller}-01", "tracestate": "vendor=1", "authorization": "Bearer key"}
        request = ingress.begin("chat toy", headers, {"http.request.method": "POST"}, of_request=True)
        assert request.trace_id == trace
        assert request.headers is not None
        assert "authorization" not in request.headers, "only what tells of the span goes on"
        with verifier.span("verify", request.headers) as work:
            work.note_event(spans.FIRST_TOKEN, {"tokens": 1})
        with pytest.raises(ValueError, match="Jane"), verifier.span("verify", request.headers):
            raise ValueError("the prompt of Jane Doe")
        request.note({"gen_ai.response.finish_reasons": ["stop"]})
        request.end()
        for part in (ingress, verifier):
            part.close()
        found = {(span.part, span.failed): span for span in received.spans}
        assert received.headers["authorization"] == "secret"
    outer, inner, wrong = found["ingress", False], found["verifier", False], found["verifier", True]
    assert (outer.trace, outer.parent, outer.server) == (trace, caller, True)
    assert (inner.trace, inner.parent, inner.server) == (trace, outer.id, False)
    assert inner.events == [(spans.FIRST_TOKEN, {"tokens": 1})]
    assert outer.attributes == {"http.request.method": "POST", "gen_ai.response.finish_reasons": ["stop"]}
    assert wrong.attributes == {"error.type": "ValueError"}
    assert "Jane" not in str(found)
    assert (outer.resource["service.name"], outer.resource["deployment.environment.name"]) == ("taskspec", "test")


def test_a_caller_that_is_not_sampled_is_left_out_and_one_without_a_span_begins_a_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spans_received = _sent(monkeypatch, f"00-{'a' * 32}-{'b' * 16}-00", None, "nonsense")
    assert len(spans_received) == len({span.trace for span in spans_received}) == 2
    assert {span.parent for span in spans_received} == {""}
    assert {span.resource["service.name"] for span in spans_received} == {"mine"}


def _sent(monkeypatch: pytest.MonkeyPatch, *parents: str | None) -> list[Received]:
    with collector() as received:
        monkeypatch.setenv(ENDPOINT, received.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        own = open_spans("ingress")
        for parent in parents:
            own.begin("chat toy", parent and {"traceparent": parent}, of_request=True).end()
        own.close()
        return received.spans


def test_a_replica_does_not_wait_for_a_collector_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry would, for half a minute."""
    sent, shut_down = Event(), TracerProvider.shutdown

    def noted(provider: TracerProvider) -> None:
        shut_down(provider)
        sent.set()

    monkeypatch.setattr(TracerProvider, "shutdown", noted)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}")
        own = open_spans("ingress")
        own.begin("chat toy", None).end()
        own.close()
        own.close()
        assert not sent.is_set()
        answering, _ = silent.accept()  # or its threads would try again beside later tests
        with answering:
            answering.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            assert sent.wait(30)


def test_replicas_on_other_nodes_get_the_variables_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {ENDPOINT: "http://collector:4318", "OTEL_SERVICE_NAME": "mine"}
    secrets = {"OTEL_EXPORTER_OTLP_HEADERS": "key=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "key=2"}
    for name, value in {**sent, **secrets}.items():
        monkeypatch.setenv(name, value)
    for target in targets(ServedModels(load_config("family"))):
        for deployment in build_app(target.target, name=target.name).deployments:
            environment = deployment.ray_actor_options["runtime_env"]["env_vars"]
            assert {name: value for name, value in environment.items() if name.startswith("OTEL_")} == sent
