"""A service on two nodes, one of which does not see a directory of the other: its file system hides it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import pytest

from serve_app.local_cluster import free_port
from tests.serve_app.command import ROOT, Command

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a node a file system of its own"),
]

RAY = Path(sys.executable).with_name("ray")
PATIENCE = 240.0  # seconds for a command
CONFIG = """
name: toy
target: {{model: "family:target", threads: 1, decoder: torch{target}}}
draft: {{model: "family:draft"}}
"""
QUESTION = {"model": "toy", "messages": [{"role": "user", "content": "What is 3 + 4?"}], "seed": 1, "max_tokens": 8}


class Nodes(NamedTuple):
    """The address of the cluster, and the directory that its second node does not see into."""

    address: str
    hidden: Path

    def serve(self, home: Path, settings: str, port: int) -> tuple[int, str]:
        """Exit code and output of `taskspec serve` with these settings."""
        config = home / "toy.yaml"
        config.write_text(settings)
        serving = Command(home, "serve", "--config", str(config), "--port", str(port), "--address", self.address)
        try:
            out, err = serving.process.communicate(timeout=PATIENCE)
        finally:
            serving.kill()
        return serving.process.returncode, out + err


@pytest.fixture(scope="module")
def nodes(token: None) -> Iterator[Nodes]:  # noqa: ARG001
    with tempfile.TemporaryDirectory(prefix="ts") as directory, ExitStack() as running:
        hidden = Path(directory) / "hidden"
        hidden.mkdir()
        ports = {name: free_port("127.0.0.1") for name in ("port", "dashboard-port", "ray-client-server-port")}
        head = [f"--{name}={port}" for name, port in ports.items()]
        address = f"127.0.0.1:{ports['port']}"
        running.enter_context(node(directory, "--head", "--node-ip-address=127.0.0.1", *head))
        hide = f'mount -t tmpfs none {hidden} && exec "$@"'
        second = ("unshare", "--mount", "sh", "-c", hide, "sh")
        running.enter_context(node(directory, f"--address={address}", "--node-ip-address=127.0.0.1", before=second))
        yield Nodes(address, hidden)


@pytest.fixture(scope="module")
def token() -> Iterator[None]:
    """The token of the cluster, in the environment of all that is started here."""
    with tempfile.NamedTemporaryFile("w") as file, pytest.MonkeyPatch.context() as environment:
        file.write("5f" * 32)
        file.flush()
        environment.setenv("RAY_AUTH_MODE", "token")
        environment.setenv("RAY_AUTH_TOKEN_PATH", file.name)
        yield


@contextmanager
def node(directory: str, *options: str, before: tuple[str, ...] = ()) -> Iterator[None]:
    """A node of a cluster, with half of the service's logical CPUs."""
    agent = free_port("127.0.0.1")
    command = [*before, str(RAY), "start", "--block", "--disable-usage-stats", "--num-cpus=1", *options]
    command += ["--object-store-memory=80000000", f"--dashboard-agent-listen-port={agent}"]
    if "--head" in options:
        command.append(f"--temp-dir={directory}")
    environment = {
        "PATH": f"{RAY.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve_app.access.proxy:middlewares",
    }
    process = subprocess.Popen(
        command,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while "Ray runtime started" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)


def answer(port: int) -> str:
    response = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=QUESTION, timeout=60)
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


def test_what_a_node_cannot_read_or_a_part_refuses_leaves_the_service_as_it_was(nodes: Nodes, tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    plain = CONFIG.format(target="")
    unshared = f"{plain}traces: {{directory: {nodes.hidden / 'traces'}}}\n"

    code, said = nodes.serve(tmp_path, unshared, port)
    assert (code, "is not one directory on the nodes" in said) == (2, True), said

    code, said = nodes.serve(tmp_path, plain, port)
    assert code == 0, said
    before = answer(port)

    keys = nodes.hidden / "keys"
    subprocess.run([RAY.with_name("taskspec"), "keys", "add", "me", "--file", keys], check=True, capture_output=True)
    code, said = nodes.serve(tmp_path, f"{plain}ingress: {{keys: {{file: {keys}}}}}\n", port)
    assert code == 2, said
    assert f"{keys} (ingress.keys.file, for the ingress): no such file or directory" in said
    assert answer(port) == before

    code, said = nodes.serve(tmp_path, CONFIG.format(target=", cache_tokens: 64"), port)
    assert code == 1, said
    assert "target.cache_tokens: 64 is less than one whole context" in said
    assert "The service before runs again" in said
    assert "Traceback" not in said
    assert answer(port) == before
