"""The commands of the pods, with their variables, on hosts that stand for pods: who has a key gets an answer.

Other than in a pod are the addresses, the places that volumes have, and the user. Pods of verifier and draft are on one
host, so what would be two of them has other ports there.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import pytest

from serve_app.access.key_file import add
from tests.bench.hosts import BIN, GATEWAY, ROOT, Host, three_hosts
from tests.eventually import eventually
from tests.serve_app.kubernetes.manifests import (
    BASE,
    DASHBOARD_PORT,
    GCS_PORT,
    base,
    container,
    environment,
    groups,
    start_command,
    the,
)

NEEDED = ("ip", "redis-server")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,  # three minutes
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make hosts"),
    pytest.mark.skipif(None in map(shutil.which, NEEDED), reason=f"needs {', '.join(NEEDED)}"),
]

PATIENCE = 300.0  # seconds for the service to start
QUESTION = {"model": "taskspec-family", "messages": [{"role": "user", "content": "What is 17 + 25?"}], "max_tokens": 8}
SECOND = {"dashboard-agent-listen-port": "52366", "metrics-export-port": "8081", "object-store-memory": "80000000"}


class Volumes(NamedTuple):
    """Where a host has what pods mount."""

    directory: Path

    def placed(self, text: str) -> str:
        """A text with the places of the volumes in it."""
        for mount in ("/shared", "/etc/taskspec-keys", "/etc/taskspec/"):
            text = text.replace(mount, f"{self.directory}{mount}")
        return text

    def update_keys(self, name: str) -> str:
        """Bring a Secret with one new key, as the kubelet does: by a link that is replaced. Returns the key."""
        mount = self.directory / "etc" / "taskspec-keys"
        version = mount / f"..{name}"
        version.mkdir(parents=True)
        key = add(version / "keys", name)
        (mount / "..new").symlink_to(version.name)
        (mount / "..new").rename(mount / "..data")
        if not (mount / "keys").is_symlink():
            (mount / "keys").symlink_to("..data/keys")
        return key

    def write_config(self) -> None:
        config = self.directory / "etc" / "taskspec"
        config.mkdir(parents=True)
        (config / "taskspec.yaml").write_text(self.placed((BASE / "taskspec.yaml").read_text()))


class Pods(NamedTuple):
    """The cluster of the manifests: its hosts, volumes and token, and the password of its Redis."""

    hosts: tuple[Host, Host, Host]
    volumes: Volumes
    token: str
    password: str

    def start(self, host: Host, role: str, changes: Mapping[str, str] | None = None) -> None:
        """Start the container of a group."""
        group, head = groups(the("RayCluster", base()))[role], role == "head"
        own = {"address": f"{self.hosts[0].address}:{GCS_PORT}"} if not head else {}
        command = start_command(group, head, {"node-ip-address": host.address, **own, **(changes or {})})
        redis = {
            "RAY_REDIS_ADDRESS": f"{GATEWAY}:6379",
            "REDIS_PASSWORD": self.password,
            "RAY_external_storage_namespace": "uid-of-the-cluster",
        }
        variables = {
            **{name: self.volumes.placed(value) for name, value in environment(container(group)).items()},
            **self.access,
            "RAY_ADDRESS": f"127.0.0.1:{GCS_PORT}" if head else own["address"],
            **(redis if head else {}),
        }
        log = host.home / f"{role}.log"
        with log.open("w") as output:
            host.popen(command, env=variables, stdout=output, stderr=output)
        eventually(lambda: "Ray runtime started" in log.read_text(), f"Ray of {role}", seen=log.read_text)

    @property
    def access(self) -> dict[str, str]:
        """What KubeRay adds for the token."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_USAGE_STATS_ENABLED": "0"}

    def deploy(self) -> str:
        """Run the container of the Job; what it says."""
        part = container({"template": the("Job", base())["spec"]["template"]})
        url = f"http://{self.hosts[0].address}:{DASHBOARD_PORT}"
        assert environment(part)["RAY_API_SERVER_ADDRESS"] == f"http://taskspec-head-svc:{DASHBOARD_PORT}"
        variables = {**os.environ, **self.access, "RAY_API_SERVER_ADDRESS": url, "PATH": f"{BIN}:{os.environ['PATH']}"}
        command = [self.volumes.placed(word) for word in (*part["command"], *part["args"])]
        outcome = subprocess.run(
            command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        return outcome.stdout

    def status(self) -> str:
        """What `taskspec status` says on the head."""
        variables = {**self.access, "RAY_ADDRESS": f"127.0.0.1:{GCS_PORT}"}
        command = ["taskspec", "status", "--address", "auto"]
        return self.hosts[0].popen(command, env=variables, stdout=subprocess.PIPE).communicate(timeout=PATIENCE)[0]

    def is_ready(self) -> bool:
        """The probe of the ingress pod."""
        probe = container(groups(the("RayCluster", base()))["ingress"])["readinessProbe"]["httpGet"]
        try:
            return httpx.get(f"{self.ingress}{probe['path']}", timeout=2, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    @property
    def ingress(self) -> str:
        return f"http://{self.hosts[1].address}:8000"

    def ask(self, key: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(
            f"{self.ingress}/v1/chat/completions", json=QUESTION, headers=headers, timeout=60, trust_env=False
        )


@pytest.fixture
def pods() -> Iterator[Pods]:
    with tempfile.TemporaryDirectory(prefix="ts") as name:
        directory, password = Path(name), secrets.token_hex(16)
        variables = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        with three_hosts(directory / "hosts", variables) as hosts, redis(directory, password):
            yield Pods(hosts, Volumes(directory), secrets.token_urlsafe(32), password)


@contextmanager
def redis(directory: Path, password: str) -> Iterator[None]:
    """The container of Redis, beside the hosts."""
    part = container({"template": the("StatefulSet", base())["spec"]["template"]})
    (directory / "data").mkdir()
    command: list[str] = [word.replace("/data", f"{directory}/data") for word in part["command"]]
    process = subprocess.Popen(command, env={**os.environ, "REDIS_PASSWORD": password}, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def test_the_pods_of_the_manifests_serve_who_has_a_key(pods: Pods) -> None:
    head, ingress, rest = pods.hosts
    pods.volumes.write_config()
    alice = pods.volumes.update_keys("alice")
    pods.start(head, "head")
    pods.start(ingress, "ingress")
    pods.start(rest, "verifier")
    pods.start(rest, "draft", SECOND)
    assert not pods.is_ready()

    said = pods.deploy()
    assert "It stays up on that cluster" in said
    eventually(pods.is_ready, "the probe of the ingress")
    answer = pods.ask(alice)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"]
    assert pods.ask("tsk-none").status_code == 401
    assert placed(pods) == {
        "SpeculativeIngress": {ingress.name},
        "TargetVerifier": {rest.name},
        "DraftPool": {rest.name},
    }

    bob = pods.volumes.update_keys("bob")
    eventually(lambda: pods.ask(bob).status_code == 200, "the key of a Secret that has changed", 10)
    eventually(lambda: pods.ask(alice).status_code == 401, "the end of a key that is gone, in every replica", 10)

    verifiers = rest.pids(":TargetVerifier")
    head.kill()
    assert pods.ask(bob).status_code == 200
    head.boot()
    pods.start(head, "head")
    eventually(lambda: "ingress" in pods.status(), "the head that has its state in Redis", 120, seen=pods.status)
    assert pods.ask(bob).status_code == 200
    assert rest.pids(":TargetVerifier") == verifiers


def placed(pods: Pods) -> dict[str, set[str]]:
    """The hosts of the replicas, by deployment."""
    names = ("SpeculativeIngress", "TargetVerifier", "DraftPool")
    return {name: {host.name for host in pods.hosts if host.processes(f":{name}")} for name in names}
