"""A host is drained while it answers: `taskspec drain` returns when its answers have ended, and another host serves."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import pytest

from tests.bench.hosts import Host, three_hosts
from tests.bench.hosts.cluster import ROLES, environment, join, serve, start_head, url
from tests.eventually import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make hosts"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2"),
]

CONFIG = """
name: toy
target: {model: "family:target", threads: 1, decoder: torch, actors: {label_selector: {role: rest}}}
draft: {model: "family:draft", actors: {label_selector: {role: rest}}}
ingress: {actors: {label_selector: {role: ingress}}}
"""
STREAMS = 12  # so many that their answers take longer than a replica takes to start
QUESTION = {
    "model": "toy",
    "messages": [{"role": "user", "content": "Write down every number."}],
    "max_tokens": 400,
    "stream": True,
    "ignore_eos": True,
}


class Answered(NamedTuple):
    """The last event of a stream, and when it came."""

    last: str
    at: float


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host, Host]]:
    with tempfile.TemporaryDirectory(prefix="ts") as name, three_hosts(Path(name), environment(Path(name))) as hosts:
        head, *others = hosts
        start_head(head, {"role": "rest"})
        for host in others:
            join(host, head, {"role": "ingress"})
        config = Path(name) / "toy.yaml"
        config.write_text(CONFIG)
        serve(head, config)
        yield hosts


def stream(host: Host, seed: int) -> Answered:
    """An answer through the proxy of a host, read to its end."""
    lines = list[str]()
    with httpx.stream(
        "POST", f"{url(host)}/v1/chat/completions", json=QUESTION | {"seed": seed}, timeout=120, trust_env=False
    ) as response:
        assert response.status_code == 200, response.read()
        lines.extend(line for line in response.iter_lines() if line.startswith("data: "))
    return Answered(lines[-1], time.monotonic())


def is_well(host: Host) -> bool:
    try:
        return httpx.get(f"{url(host)}/-/healthz", timeout=2, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def has_ingress(host: Host) -> bool:
    return bool(host.processes(ROLES["ingress"]))


def test_a_drained_host_ends_its_answers_and_another_serves(hosts: tuple[Host, Host, Host]) -> None:
    going, staying = sorted(hosts[1:], key=has_ingress, reverse=True)
    assert has_ingress(going)
    assert not has_ingress(staying)
    with ThreadPoolExecutor(STREAMS) as clients:
        answers = [clients.submit(stream, going, seed) for seed in range(STREAMS)]
        time.sleep(1)  # they have begun
        began = time.monotonic()
        going.run(
            ["taskspec", "drain", "--seconds", "660"], timeout=300, env={"RAY_ADDRESS": f"{hosts[0].address}:6379"}
        )
        ended = time.monotonic()
        answered = [answer.result() for answer in answers]
    assert {answer.last for answer in answered} == {"data: [DONE]"}
    assert all(began < answer.at < ended for answer in answered)
    assert not has_ingress(going)
    assert not is_well(going)
    assert has_ingress(staying)
    eventually(lambda: is_well(staying), "the proxy of the host that stays")
    assert stream(staying, 0).last == "data: [DONE]"
