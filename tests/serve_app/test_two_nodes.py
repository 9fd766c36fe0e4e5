"""A service on two nodes, one of which does not see a directory of the other: its file system hides it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import pytest

from tests.bench.hosts import BIN, Host, three_hosts
from tests.bench.hosts.cluster import environment, start_ray, url

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make hosts"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2"),
]

PATIENCE = 240.0  # seconds for a command
CONFIG = """
name: toy
target: {{model: "family:target", threads: 1, decoder: torch{target}}}
draft: {{model: "family:draft"}}
"""
QUESTION = {"model": "toy", "messages": [{"role": "user", "content": "What is 3 + 4?"}], "seed": 1, "max_tokens": 8}


class Nodes(NamedTuple):
    """The head of the cluster, and the directory that its other node does not see into."""

    head: Host
    hidden: Path

    def serve(self, settings: str, *options: str) -> tuple[int, str]:
        """Exit code and output of `taskspec serve` with these settings."""
        config = self.head.home / "toy.yaml"
        config.write_text(settings)
        command = ["taskspec", "serve", "--config", config, "--address", "auto", "--host", "0.0.0.0", *options]
        process = self.head.popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, output

    def answer(self) -> str:
        response = httpx.post(f"{url(self.head)}/v1/chat/completions", json=QUESTION, timeout=60, trust_env=False)
        assert response.status_code == 200, response.text
        text: str = response.json()["choices"][0]["message"]["content"]
        return text


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="ts") as name, three_hosts(Path(name), environment(Path(name))) as hosts:
        hidden = Path(name) / "hidden"
        hosts[1].small_disk(hidden)
        start_ray(hosts[:2])
        yield Nodes(hosts[0], hidden)


def test_what_a_node_cannot_read_or_a_part_refuses_leaves_the_service_as_it_was(nodes: Nodes) -> None:
    plain = CONFIG.format(target="")
    unshared = f"{plain}traces: {{directory: {nodes.hidden / 'traces'}}}\n"

    code, said = nodes.serve(unshared, "--insecure")
    assert (code, "is not one directory on the nodes" in said) == (2, True), said

    code, said = nodes.serve(plain, "--insecure")
    assert code == 0, said
    before = nodes.answer()

    keys = nodes.hidden / "keys"
    subprocess.run([BIN / "taskspec", "keys", "add", "me", "--file", keys], check=True, capture_output=True)
    code, said = nodes.serve(f"{plain}ingress: {{keys: {{file: {keys}}}}}\n")
    assert code == 2, said
    assert f"{keys} (ingress.keys.file, for the ingress): no such file or directory" in said
    assert nodes.answer() == before

    code, said = nodes.serve(CONFIG.format(target=", cache_tokens: 64"), "--insecure")
    assert code == 1, said
    assert "target.cache_tokens: 64 is less than one whole context" in said
    assert "The service before runs again" in said
    assert "Traceback" not in said
    assert nodes.answer() == before
