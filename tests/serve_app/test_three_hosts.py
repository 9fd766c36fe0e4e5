"""A service on three hosts, two of them with a verifier, of which any may be lost: no answer changes, none is refused.

The hosts are namespaces on this machine, and a balancer is in front of their proxies, as operating.md has it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest

from tests.bench.hosts import Host, three_hosts
from tests.bench.hosts.cluster import (
    ROLES,
    balancer,
    environment,
    join,
    redis,
    serve,
    start_head,
    start_ray,
    url,
)
from tests.eventually import eventually

NEEDED = ("ip", "redis-server", "haproxy")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make hosts"),
    pytest.mark.skipif(None in map(shutil.which, NEEDED), reason=f"needs {', '.join(NEEDED)}"),
]

CONFIG = """
name: toy
target: {model: "family:target", threads: 1, decoder: torch, actors: {replicas: 2}}
draft: {model: "family:draft"}
ingress: {actors: {replicas: 3}}
"""
STATUS = ["taskspec", "status", "--address", "auto", "--json"]
REPLICAS = {"target": 2, "ingress": 3, "general": 1}
LONG = 400  # tokens, enough to lose a host meanwhile
PATIENCE = 180.0  # seconds until what was lost runs again
CONCURRENCY = 4


class Stage(NamedTuple):
    """The hosts, the head first; the URL of the balancer, the address of Redis, and the configuration."""

    hosts: tuple[Host, Host, Host]
    balanced: str
    redis: str
    config: Path

    def places(self, role: str) -> list[Host]:
        """The host of each replica of a role."""
        return [host for host in self.hosts for _ in host.processes(ROLES[role])]

    def pids(self, role: str) -> set[int]:
        return {pid for host in self.hosts for pid in host.pids(ROLES[role])}

    def is_whole(self) -> bool:
        """Whether every replica runs, and every proxy is healthy.

        A replica has a process before it runs, and one that was starting when the head was lost may keep its process,
        though Serve has started another.
        """
        if not all(map(is_healthy, self.hosts)):
            return False
        try:
            status = json.loads(self.hosts[0].run(STATUS, stderr=subprocess.DEVNULL))
        except RuntimeError:  # the head does not answer
            return False
        return {part["name"]: part["running"] for part in status["parts"]} == REPLICAS


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="ts") as name:
        directory = Path(name)
        config = directory / "toy.yaml"
        config.write_text(CONFIG)
        with (
            three_hosts(directory, environment(directory)) as hosts,
            redis(directory) as address,
            balancer(directory, hosts) as balanced,
        ):
            start_ray(hosts, redis=address)
            serve(hosts[0], config)
            yield Stage(hosts, balanced, address, config)


@pytest.fixture(scope="module")
def reference(stage: Stage) -> list[str]:
    """What each seed is answered without drafts."""
    plain = {"speculation": {"num_speculative_tokens": 0}}
    return [Answer(stage.balanced, seed, plain).read() for seed in range(CONCURRENCY)]


@pytest.fixture(autouse=True)
def whole(stage: Stage) -> None:
    eventually(stage.is_whole, "everything runs", PATIENCE, lambda: {role: stage.places(role) for role in ROLES})


class Answer:
    """A streamed answer, as far as it has come."""

    def __init__(self, place: str, seed: int, more: dict[str, Any] | None = None) -> None:
        messages = [{"role": "user", "content": "What is 3 + 4?"}]
        length = {"max_tokens": LONG, "ignore_eos": True, "temperature": 1.0}
        self._body = {"model": "toy", "messages": messages, "seed": seed, "stream": True, **length, **(more or {})}
        self._url = f"{place}/v1/chat/completions"
        self.text = ""

    def read(self) -> str:
        """All of it, which ends as it should."""
        with httpx.stream("POST", self._url, json=self._body, timeout=PATIENCE, trust_env=False) as response:
            assert response.status_code == 200, response.read()
            lines = [self._take(line.removeprefix("data: ")) for line in response.iter_lines() if "data: " in line]
        assert lines[-1] == "[DONE]"
        return self.text

    def _take(self, line: str) -> str:
        if line != "[DONE]":
            event = httpx.Response(200, text=line).json()
            assert "error" not in event, line
            for choice in event["choices"]:
                self.text += choice["delta"].get("content") or ""
        return line


class Answers:
    """One of each seed at once, through the same place."""

    def __init__(self, places: Sequence[str], pool: ThreadPoolExecutor) -> None:
        self._answers = [Answer(places[seed % len(places)], seed) for seed in range(CONCURRENCY)]
        self._texts: list[Future[str]] = [pool.submit(answer.read) for answer in self._answers]
        eventually(lambda: self.ended or all(answer.text for answer in self._answers), "every answer has begun")
        assert not self.ended, self.texts()

    @property
    def ended(self) -> bool:
        return any(text.done() for text in self._texts)

    def texts(self) -> list[str]:
        return [text.result(timeout=PATIENCE) for text in self._texts]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2 * CONCURRENCY) as executor:
        yield executor


def is_healthy(host: Host) -> bool:
    try:
        return httpx.get(f"{url(host)}/healthz", timeout=2, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_replicas_are_apart_and_every_proxy_answers_alike(stage: Stage, reference: list[str]) -> None:
    assert len(set(stage.places("verifier"))) == 2
    assert len(set(stage.places("ingress"))) == 3
    assert [Answer(url(host), 1).read() for host in stage.hosts] == [reference[1]] * 3


def test_a_deployment_again_under_load_cuts_and_refuses_nothing(
    stage: Stage, reference: list[str], pool: ThreadPoolExecutor
) -> None:
    before = stage.pids("verifier")
    deploying = pool.submit(serve, stage.hosts[0], stage.config)
    rounds = 0
    while not deploying.done():
        assert Answers([stage.balanced], pool).texts() == reference
        rounds += 1
    assert "ready" in deploying.result()
    assert rounds
    eventually(lambda: not before & stage.pids("verifier"), "the old replicas have ended", PATIENCE)
    assert len(set(stage.places("verifier"))) == 2


def test_the_host_of_a_verifier_dies_and_no_answer_changes(
    stage: Stage, reference: list[str], pool: ThreadPoolExecutor
) -> None:
    victim = next(host for host in stage.places("verifier") if host is not stage.hosts[0])
    answers = Answers([url(host) for host in stage.hosts if host is not victim], pool)
    victim.kill()
    assert answers.texts() == reference
    assert [Answer(stage.balanced, seed).read() for seed in range(CONCURRENCY)] == reference
    victim.boot()
    join(victim, stage.hosts[0])


def test_a_dead_proxy_is_not_asked_and_replaced(stage: Stage, reference: list[str]) -> None:
    [dead] = stage.hosts[1].signal(ROLES["proxy"])
    for _ in range(3):
        assert [Answer(stage.balanced, seed).read() for seed in range(CONCURRENCY)] == reference
    eventually(stage.is_whole, "a new proxy", PATIENCE)
    assert dead not in stage.hosts[1].pids(ROLES["proxy"])


def test_a_silent_host_is_given_up(stage: Stage, reference: list[str]) -> None:
    victim = next(host for host in stage.places("verifier") if host is not stage.hosts[0])
    victim.link_down()
    try:
        assert Answer(stage.balanced, 1).read() == reference[1]
    finally:
        victim.link_up()


def test_the_head_is_lost_and_comes_back(stage: Stage, reference: list[str], pool: ThreadPoolExecutor) -> None:
    """Its GCS dies, and all of the host with it, then the host itself, while the others answer."""
    head, *others = stage.hosts
    answers = Answers(list(map(url, others)), pool)
    [gcs] = head.signal(ROLES["gcs"])
    assert answers.texts() == reference
    eventually(lambda: gcs not in head.pids(ROLES["gcs"]) and stage.is_whole(), "a new GCS", PATIENCE)

    answers = Answers(list(map(url, others)), pool)
    head.kill()
    assert answers.texts() == reference
    assert [Answer(stage.balanced, seed).read() for seed in range(CONCURRENCY)] == reference
    head.boot()
    start_head(head, redis=stage.redis)
    eventually(stage.is_whole, "the head serves again", PATIENCE)
    assert [Answer(url(host), 1).read() for host in stage.hosts] == [reference[1]] * 3
    serve(head, stage.config)
    assert Answer(stage.balanced, 1).read() == reference[1]
