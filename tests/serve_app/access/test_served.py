"""`taskspec serve` with keys, as its users have it: Serve's proxy and replicas, and everything that Ray logs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import psutil
import pytest

from serve_app.access.key_file import add, revoke
from serve_app.local_cluster import running_services
from serve_app.ray_private import CLUSTERS
from tests.eventually import PATIENCE, eventually
from tests.serve_app.clients import H2C, raw_post
from tests.serve_app.command import Command
from tests.serve_app.listeners import listeners

pytestmark = pytest.mark.cluster

CONFIG = """
name: guarded
target: {{model: "family:target", threads: 1, decoder: torch}}
draft: {{model: "family:draft"}}
ingress: {{keys: {{file: {keys}}}, limits: {{requests_per_minute: 1000, tokens_per_minute: 1000000}}}}
"""
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "guarded",
    "messages": [{"role": "user", "content": "What is 3 + 4?"}],
    "max_tokens": 8,
}


class Served(NamedTuple):
    """A service for others, its file of keys, the key of alice, the directory of its Ray, and its command."""

    url: str
    keys: Path
    alice: str
    directory: Path
    command: Command

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    keys = home / "keys"
    alice = add(keys, "alice")
    config = home / "guarded.yaml"
    config.write_text(CONFIG.format(keys=keys))
    serving = Command(home, "serve", "--host", "0.0.0.0", "--port", "0", "--config", str(config))
    try:
        url = serving.match(r"OpenAI base_url: (http://\S+)/v1")
        [directory] = {match for line in serving.processes() for match in re.findall(r"/tmp/taskspec-\w+", line)}
        yield Served(url, keys, alice, Path(directory), serving)
        serving.process.send_signal(signal.SIGINT)
        serving.process.communicate(timeout=PATIENCE)
    finally:
        serving.kill()


def test_of_a_service_for_others_they_reach_the_http_port_only(served: Served) -> None:
    found = listeners(process for process in psutil.process_iter() if served.command.owns(process))
    assert len({one.process for one in found}) > 5
    assert {(one.address, one.port) for one in found if not one.on_loopback} == {
        ("0.0.0.0", httpx.URL(served.url).port)
    }


def test_its_keys_are_not_taken_away_by_a_deployment_without_any(served: Served) -> None:
    [service] = [one for one in running_services() if one.url == served.url]
    environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(service.token_file), CLUSTERS: "0"}
    outcome = subprocess.run(
        [sys.executable, "-m", "serve_app.cli.main", "serve", "--config", "family", "--address", service.address],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert outcome.returncode == 2, outcome
    assert "listens on 0.0.0.0" in outcome.stderr
    assert "asks for API keys" in outcome.stderr
    with served.client() as client:
        assert client.post(CHAT, json=BODY).status_code == 401


def test_without_a_key_nothing_but_health_answers_and_a_revoked_key_fails_within_a_second(served: Served) -> None:
    bob = add(served.keys, "bob")
    with served.client() as client:
        for path in ("/", "/docs", "/openapi.json", "/metrics", "/v1/models", "/version", "/nothing", "/-/routes"):
            assert client.get(path).status_code in ((404,) if path == "/-/routes" else (401,)), path
        assert client.post(CHAT, json=BODY).status_code == 401
        assert [client.get(path).status_code for path in ("/health", "/healthz")] == [200, 200]
    time.sleep(1)
    with served.client(bob) as client:
        assert client.post(CHAT, json=BODY).status_code == 200
        revoke(served.keys, "bob")
        time.sleep(1)
        assert client.post(CHAT, json=BODY).status_code == 401
    with served.client(served.alice) as client:
        assert client.post(CHAT, json=BODY).status_code == 200


def test_answers_have_one_request_id_and_the_limits(served: Served) -> None:
    with served.client(served.alice) as client:
        for sent, echoed in (("mine-1", True), ("x" * 300, False)):
            for body in (BODY, {**BODY, "stream": True}, {**BODY, "temperature": 9}):
                answer = client.post(CHAT, json=body, headers={"x-request-id": sent})
                [got] = answer.headers.get_list("x-request-id")
                assert (got == sent) == echoed
                assert answer.headers["x-ratelimit-limit-requests"] == "1000"
                assert int(answer.headers["x-ratelimit-remaining-tokens"]) > 0


def test_bodies_and_headers_over_the_limits_are_refused_and_the_service_goes_on(served: Served) -> None:
    content = {"Content-Type": "application/json"}
    with served.client(served.alice) as client:
        large = client.post(CHAT, content=b" " * (5 << 20), headers=content)
        chunked = client.post(CHAT, content=iter([b" " * (1 << 20)] * 5), headers=content)
        for refused in (large, chunked):
            assert (refused.status_code, refused.json()["error"]["type"]) == (413, "invalid_request_error")
        headers = client.get("/v1/models", headers={"x-large": "x" * 100_000})
        assert (headers.status_code, headers.json()["error"]["type"]) == (431, "invalid_request_error")
        assert client.post(CHAT, json=BODY).status_code == 200


async def test_the_body_of_a_request_that_offers_http_2_is_read(served: Served) -> None:
    port = int(served.url.rpartition(":")[2])
    headers = f"{H2C}Authorization: Bearer {served.alice}\r\n"
    head, answer = await raw_post(port, CHAT, json.dumps(BODY).encode(), headers)
    assert head.startswith("http/1.1 200"), answer


def test_the_metrics_of_the_service_are_at_one_address(served: Served) -> None:
    wanted = (
        "ray_taskspec_verifier_tokens_total{",
        "ray_taskspec_answer_seconds_bucket{",
        "ray_vllm_num_requests_running{",
        "ray_vllm_e2e_request_latency_seconds_bucket{",
        'key_name="alice"',
    )
    with served.client(served.alice) as client:
        assert client.post(CHAT, json=BODY).status_code == 200
        read = partial(client.get, "/metrics")
        eventually(lambda: all(name in read().text for name in wanted), f"{wanted} are told", seen=lambda: read().text)
        text = read().text
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(line.startswith(("ray_taskspec_", "ray_vllm_")) for line in samples)
    named = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(named) == len(set(named)) > 3


def test_no_log_of_ray_and_no_answer_has_a_key(served: Served) -> None:
    bad = served.alice[:-4] + "zzzz"
    told: list[str] = []
    bodies: list[dict[str, Any]] = [BODY, {**BODY, "stream": True}, {**BODY, "temperature": "hot"}]
    for key in (served.alice, bad):
        for headers in ({"Authorization": f"Bearer {key}"}, {"Authorization": key}, {"x-api-key": key}):
            with served.client() as client:
                told += [client.post(CHAT, json=body, headers=headers).text for body in bodies]
                told.append(client.get("/nothing", headers=headers).text)
                told.append(client.post(CHAT, content=b"{", headers=headers).text)
    logs = {file: file.read_text(errors="replace") for file in served.directory.rglob("*") if _is_log(file)}
    access = [line for text in logs.values() for line in text.splitlines() if f"POST {CHAT} " in line]
    assert any(line.endswith(" alice") and " 200 " in line for line in access)
    assert any(line.endswith(" -") and " 401 " in line for line in access)
    for key in (served.alice, bad):
        secret = key.removeprefix("tsk-")[:16]
        assert not [file for file, text in logs.items() if secret in text]
        assert secret not in json.dumps(told)


def _is_log(file: Path) -> bool:
    return "logs" in file.parts and file.is_file() and not file.is_symlink()
