"""The console of a real service with keys: what it tells, and what an admin's key does there and another does not."""

from __future__ import annotations

import json
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest

from core.bundle.store import go_live
from serve_app.access.key_file import add
from tests.core.replay.shadowed import PYTHON, SHIPPED, copied, with_a_worse_adapter
from tests.eventually import PATIENCE, eventually
from tests.serve_app.command import Command

pytestmark = pytest.mark.cluster

CONFIG = """
name: shown
target: {{model: "family:target", dtype: bfloat16, threads: 1}}
draft: {{model: "family:draft"}}
bundle: {bundles}
rollout: {{follow: false, canary_answers: 1000}}
ingress: {{keys: {{file: {keys}}}, limits: {{requests_per_minute: 1000}}}}
"""
ASKED: dict[str, Any] = {
    "model": "shown",
    "messages": [{"role": "user", "content": "Write a Python function that prints a list."}],
    "max_tokens": 24,
    "seed": 3,
    "speculation": {"task": PYTHON, "num_speculative_tokens": 4},
}
DEPLOY, SCALE = "/console/deploy", "/console/scale"


def accepted_by_source(told: dict[str, Any]) -> Counter[str]:
    """Those that are more than none."""
    return +Counter({source: counts["accepted"] for source, counts in told["sources"].items()})


class Shown(NamedTuple):
    """A service with two bundles, of which the shipped one serves; alice is an admin, and bob is not."""

    url: str
    alice: str
    bob: str
    candidate: str
    directory: Path

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def status(self, key: str) -> dict[str, Any]:
        with self.client(key) as client:
            answer = client.get("/console/status")
            assert answer.status_code == 200, answer.text
            told: dict[str, Any] = answer.json()
            return told

    def rollout(self) -> dict[str, Any]:
        told: dict[str, Any] = self.status(self.alice)["rollout"]
        return told

    def part(self, name: str) -> dict[str, Any]:
        parts: list[dict[str, Any]] = self.status(self.alice)["parts"]
        return next(part for part in parts if part["name"] == name)

    def logs(self) -> str:
        """All that Serve and Ray have written."""
        files = [file for file in (self.directory / "session_latest/logs").rglob("*") if file.is_file()]
        return "".join(file.read_text(errors="replace") for file in files)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("home")
    root, keys, config = copied(home / "bundles"), home / "keys", home / "shown.yaml"
    candidate = with_a_worse_adapter(root, home / "worse").version
    go_live(root, SHIPPED)
    alice, bob = add(keys, "alice", admin=True), add(keys, "bob")
    config.write_text(CONFIG.format(bundles=root, keys=keys))
    serving = Command(home, "serve", "--port", "0", "--config", str(config))
    try:
        url = serving.match(r"In a browser: +(http://\S+)/")
        [directory] = {match for line in serving.processes() for match in re.findall(r"/tmp/taskspec-\w+", line)}
        yield Shown(url, alice, bob, candidate, Path(directory))
        serving.process.send_signal(signal.SIGINT)
        serving.process.communicate(timeout=PATIENCE)
    finally:
        serving.kill()


def test_an_answer_is_seen_in_what_the_console_tells_of_its_task_and_its_client(shown: Shown) -> None:
    with shown.client(shown.bob) as client:
        answer = client.post("/v1/chat/completions", json=ASKED).json()
        chunks = client.post(
            "/v1/chat/completions",
            json={**ASKED, "stream": True, "stream_options": {"include_usage": True, "include_speculation": True}},
        ).text
    runs = [json.loads(line.removeprefix("data: ")) for line in chunks.splitlines() if line.startswith("data: {")]
    usages = [accepted_by_source(body["usage"]["speculation"]) for body in (answer, runs[-1])]
    status = shown.status(shown.bob)
    tasks = {task["name"]: task for task in status["tasks"]}
    assert (tasks[PYTHON]["hour"]["answers"], tasks[PYTHON]["share"], tasks[PYTHON]["router"]["named"]) == (2, 1.0, 2)
    assert accepted_by_source(tasks[PYTHON]) == usages[0] + usages[1]
    assert tasks[PYTHON]["slot"]["own"]
    assert sum(minute["answers"] for minute in status["minutes"]) == 2
    assert sum(minute["requests"] for minute in status["minutes"]) >= 2
    assert (status["bundle"], status["rollout"]["state"], status["queue"]["waiting"]) == (SHIPPED, "steady", 0)
    assert {one["version"] for one in status["bundles"]} == {SHIPPED, shown.candidate}
    assert [key["name"] for key in status["keys"]] == ["bob"]
    assert [key["name"] for key in shown.status(shown.alice)["keys"]] == ["alice", "bob"]
    target = next(part for part in status["parts"] if part["name"] == "target")
    assert target["free_pages"] > 0
    assert [replica["state"] for replica in target["replicas"]] == ["RUNNING"]
    told = [run["choices"][0]["speculation"] for run in runs if run["choices"]]
    counted = sum((Counter({one["source"]: one["accepted"]}) for one in told if one.get("source")), Counter[str]())
    assert counted == usages[1]
    assert usages[0] + usages[1]


def test_events_come_once_a_second_and_to_holders_of_keys_only(shown: Shown) -> None:
    with shown.client() as client:
        assert {client.get(path).status_code for path in ("/console/events", "/console/status")} == {401}
    seen: list[float] = []
    with shown.client(shown.bob) as client, client.stream("GET", "/console/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: "))["at"])
            if len(seen) == 4:
                break
    gaps = [later - earlier for earlier, later in pairwise(seen)]
    assert all(0.5 < gap < 5.0 for gap in gaps), gaps


def test_an_admin_scales_a_pool_and_others_are_refused_with_a_line_in_the_log(shown: Shown) -> None:
    body = {"replicas": {PYTHON: 0}}
    with shown.client() as client:
        assert client.post(SCALE, json=body).status_code == 401
    with shown.client(shown.bob) as client:
        refused = client.post(SCALE, json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_key_needed")
    with shown.client(shown.alice) as client:
        evil = client.post(SCALE, json=body, headers={"Origin": "https://evil.example.org"})
        assert (evil.status_code, shown.part(PYTHON)["target"]) == (403, 1)
        done = client.post(SCALE, json=body, headers={"Origin": shown.url})
        assert done.json() == {"done": f"{PYTHON}: 1 -> 0 replicas"}
        eventually(lambda: shown.part(PYTHON)["running"] == 0, "no replica runs")
        unknown = client.post(SCALE, json={"replicas": {"nothing": 1}})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (409, "not_possible")
        client.post(SCALE, json={"replicas": {PYTHON: 1}})
    eventually(lambda: shown.part(PYTHON)["running"] == 1, "a replica runs")
    lines = shown.logs()
    for line in (
        "/console/scale by bob: refused, admin_key_needed",
        "/console/scale by alice: refused, wrong_origin",
        f"scale '{PYTHON}' to 0 by alice: {PYTHON}: 1 -> 0 replicas",
        "POST /console/scale 401",
    ):
        assert line in lines
    assert not [fault for fault in shown.status(shown.bob)["faults"] if "/console" in fault["what"]]


def test_an_admin_makes_a_bundle_a_canary_and_ends_it(shown: Shown) -> None:
    body = {"version": shown.candidate, "share": 0.5}
    with shown.client(shown.bob) as client:
        assert client.post(DEPLOY, json=body).status_code == 403
    assert shown.rollout()["state"] == "steady"
    with shown.client(shown.alice) as client:
        unknown = client.post(DEPLOY, json={"version": "0" * 16})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (409, "not_possible")
        assert all(version in unknown.json()["error"]["message"] for version in ("0" * 16, SHIPPED, shown.candidate))
        assert client.post(DEPLOY, json=body).json() == {"done": f"bundle {shown.candidate}: its pools are starting"}
        eventually(lambda: shown.rollout()["state"] == "canary", "the canary has prompts", seen=shown.rollout)
        canary = shown.rollout()
        assert (canary["version"], canary["candidate"], canary["share"]) == (SHIPPED, shown.candidate, 0.5)
        assert canary["betting"]["ruin"] > 1.0
        assert client.post(DEPLOY, json={"version": SHIPPED}).status_code == 200
    eventually(lambda: shown.rollout()["state"] == "steady", "the canary has ended", seen=shown.rollout)
    assert shown.rollout()["candidate"] is None


def test_no_log_has_a_key(shown: Shown) -> None:
    time.sleep(1)
    lines = shown.logs()
    assert "alice" in lines
    for key in (shown.alice, shown.bob):
        assert key.removeprefix("tsk-")[:16] not in lines
