"""`taskspec serve` with a collector beside it: a request is one trace through all parts, and one line of JSON."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import psutil
import pytest

from serve_app.spans import FAILOVER, FIRST_TOKEN, PREFILL
from tests.eventually import PATIENCE, eventually
from tests.serve_app.collector import Collector, Received, collector
from tests.serve_app.command import Command

pytestmark = pytest.mark.cluster

CALLER, CHAT = "00f067aa0ba902b7", "/v1/chat/completions"
SECRET = "What is 17 + 25, Jane Doe?"
BODY: dict[str, Any] = {
    "model": "taskspec-family",
    "messages": [{"role": "user", "content": SECRET}],
    "max_tokens": 200,
    "seed": 7,
    "logit_bias": {"2": -100},  # no end before `max_tokens`
    "speculation": {"num_speculative_tokens": 4},
}


class Traced(NamedTuple):
    """A service that sends its spans to the collector; `directory` is that of its Ray."""

    url: str
    collector: Collector
    directory: Path
    command: Command

    def client(self, trace: str) -> httpx.Client:
        headers = {"traceparent": f"00-{trace}-{CALLER}-01", "x-request-id": trace[:8]}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False)

    def trace(self, trace: str, *parts: str) -> list[Received]:
        """The spans of a trace, once these parts have sent theirs."""
        of_trace = partial(self.collector.of, trace)
        eventually(lambda: set(parts) <= {span.part for span in of_trace()}, f"spans of {parts}", seen=of_trace)
        return of_trace()

    def lines(self, deployment: str) -> list[dict[str, Any]]:
        """Those of the logs of its replicas, each an object."""
        files = list((self.directory / "session_latest/logs/serve").glob(f"replica_*{deployment}*.log"))
        assert files
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    home = tmp_path_factory.mktemp("home")
    with collector() as received, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        serving = Command(home, "serve", "--port", "0", "--config", "family", "--log-format", "json")
        try:
            url = serving.match(r"OpenAI base_url: (http://\S+)/v1")
            [directory] = {match for line in serving.processes() for match in re.findall(r"/tmp/taskspec-\w+", line)}
            traced = Traced(url, received, Path(directory), serving)
            with traced.client("f" * 32) as client:  # a router that was never asked may answer when all is said
                assert client.post(CHAT, json=BODY | {"max_tokens": 500}).status_code == 200
            yield traced
            serving.process.send_signal(signal.SIGINT)
            serving.process.communicate(timeout=PATIENCE)
        finally:
            serving.kill()


def test_a_request_is_one_trace_through_every_part_and_a_line_of_json(traced: Traced) -> None:
    trace = "a" * 32
    with traced.client(trace) as client:
        answer = client.post(CHAT, json=BODY).json()
    spans = traced.trace(trace, "ingress", "router", "draft", "verifier")
    [outer] = [span for span in spans if span.part == "ingress"]
    assert (outer.name, outer.parent, outer.server) == ("chat taskspec-family", CALLER, True)
    inner = [span for span in spans if span is not outer]
    assert {span.name for span in inner} == {"route", "draft", "verify"}
    assert {(span.parent, span.server) for span in inner} == {(outer.id, False)}
    assert [name for name, _ in outer.events][:2] == [PREFILL, FIRST_TOKEN]
    usage = answer["usage"]
    assert outer.attributes["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert outer.attributes["gen_ai.usage.output_tokens"] == usage["completion_tokens"] == BODY["max_tokens"]
    assert outer.attributes["gen_ai.response.finish_reasons"] == ["length"]
    assert {span.attributes["taskspec.task"] for span in inner if span.name == "draft"} & {usage["speculation"]["task"]}
    assert "Jane" not in str(spans)
    [line] = [line for line in traced.lines("SpeculativeIngress") if line.get("trace_id") == trace]
    counts = {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
    speculation = usage["speculation"]
    counts |= {"proposed_tokens": speculation["proposed"], "accepted_tokens": speculation["accepted"]}
    named = {"request_id": trace[:8], "status": 200, "key": None, "model": BODY["model"], "task": speculation["task"]}
    assert line | counts | named == line
    assert 0 < line["queue_s"] < line["first_token_s"] < line["total_s"]
    assert all(traced.lines(part) for part in ("TargetVerifier", "TaskRouter", "DraftPool"))


def test_the_span_of_an_answer_tells_that_its_verifier_was_lost(traced: Traced) -> None:
    trace = "b" * 32
    body = BODY | {"max_tokens": 400, "stream": True, "speculation": {"enabled": False}}
    with traced.client(trace) as client, client.stream("POST", CHAT, json=body) as response:
        events = response.iter_lines()
        next(events)
        _kill_verifier(traced.command)
        assert "data: [DONE]" in list(events)
    spans = traced.trace(trace, "ingress", "verifier")
    [outer] = [span for span in spans if span.part == "ingress"]
    names = [name for name, _ in outer.events]
    assert names[:3] == [PREFILL, FIRST_TOKEN, FAILOVER]
    assert set(names[3:-1]) <= {FAILOVER}, "the next one may be called before it runs"
    assert names[-1] == PREFILL
    tokens = outer.events[2][1]["taskspec.tokens"]
    assert 0 < tokens < 400
    assert outer.attributes["gen_ai.usage.output_tokens"] == 400
    assert not outer.failed


def test_health_is_asked_for_without_a_span(traced: Traced) -> None:
    trace = "c" * 32
    with traced.client(trace) as client:
        assert client.get("/healthz").status_code == 200
        client.post(CHAT, json=BODY | {"messages": []})
    [span] = traced.trace(trace, "ingress")
    assert span.attributes["http.response.status_code"] == 400
    time.sleep(0.3)
    assert len(traced.collector.of(trace)) == 1


def _kill_verifier(command: Command) -> None:
    [replica] = [
        process
        for process in psutil.process_iter()
        if command.owns(process) and "TargetVerifier" in " ".join(process.cmdline())
    ]
    replica.kill()
