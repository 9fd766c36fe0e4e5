"""Ray and a service on hosts, with what an operator has around them: a token, Redis, and a balancer."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.hosts import GATEWAY, ROOT, Host
from tests.eventually import eventually

GCS_PORT = 6379
REDIS_PORT = 6380
HTTP_PORT = 8000
BALANCED_PORT = 8080
BALANCED = f"http://{GATEWAY}:{BALANCED_PORT}"
# What the command line of a part has, for `Host.processes` and `Host.signal`.
ROLES = {
    "gcs": "/gcs_server ",
    "raylet": "/raylet/raylet ",
    "controller": "ray::ServeController",
    "proxy": "ray::ProxyActor",
    "ingress": ":SpeculativeIngress",
    "verifier": ":TargetVerifier",
    "draft": ":DraftPool",
    "router": ":TaskRouter",
    "rollout": ":Rollout",
}
_SUPERVISOR = 'while :; do "$@" >> "$0" 2>&1; ray stop --force > /dev/null; sleep 1; done'


def environment(directory: Path) -> dict[str, str]:
    """What every process of the cluster has in its environment; the token of its Ray is written into `directory`."""
    token = directory / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    return {
        **shipped_environment(),
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def shipped_environment() -> dict[str, str]:
    """What serve_app/ray.env has for every node."""
    lines = (ROOT / "serve_app" / "ray.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def start_ray(hosts: Sequence[Host], labels: Mapping[str, str] | None = None, redis: str | None = None) -> None:
    """Make a cluster of the hosts. The first is its head, which keeps its state in a Redis if it is given one."""
    start_head(hosts[0], labels, redis)
    for host in hosts[1:]:
        join(host, hosts[0], labels)


def start_head(host: Host, labels: Mapping[str, str] | None = None, redis: str | None = None) -> None:
    """Make the host the head of a cluster: with a Redis that has been another head's, of the same cluster."""
    variables = {} if redis is None else {"RAY_REDIS_ADDRESS": redis}
    _start(host, ["--head", f"--port={GCS_PORT}", "--include-dashboard=false"], labels, variables)


def join(host: Host, head: Host, labels: Mapping[str, str] | None = None) -> None:
    """Make the host a node of the cluster."""
    _start(host, [f"--address={head.address}:{GCS_PORT}"], labels, {})


def serve(host: Host, config: Path, *options: str) -> str:
    """Deploy a service from the host on its cluster; what the command says."""
    options = ("--address", "auto", "--host", "0.0.0.0", "--port", str(HTTP_PORT), "--insecure", *options)
    return host.run(["taskspec", "serve", "--config", config, *options], timeout=600)


def url(host: Host) -> str:
    """Of the service, at the proxy of this host."""
    return f"http://{host.address}:{HTTP_PORT}"


@contextmanager
def redis(directory: Path) -> Iterator[str]:
    """A Redis beside the hosts, as on a machine of its own; its address."""
    command = ["redis-server", "--bind", GATEWAY, "--port", str(REDIS_PORT), "--protected-mode", "no"]
    with _beside([*command, "--dir", str(directory), "--appendonly", "yes"], directory / "redis.log"):
        yield f"{GATEWAY}:{REDIS_PORT}"


@contextmanager
def balancer(directory: Path, hosts: Sequence[Host]) -> Iterator[str]:
    """HAProxy beside the hosts, before all their proxies, as operating.md has it; its URL."""
    file = directory / "haproxy.cfg"
    servers = "\n".join(f"  server {host.name} {host.address}:{HTTP_PORT}" for host in hosts)
    file.write_text(re.sub(r"(  server \S+ \S+\n)+", f"{servers}\n", documented("haproxy")))
    with _beside(["haproxy", "-f", str(file)], directory / "haproxy.log"):
        yield BALANCED


def documented(language: str) -> str:
    """The code block of this language in operating.md."""
    page = (ROOT / "serve_app" / "operating.md").read_text()
    block = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert block is not None, language
    return block[1]


@contextmanager
def _beside(command: Sequence[str], log: Path) -> Iterator[None]:
    """A program in the network of the hosts, on none of them, for as long as the block lasts."""
    with log.open("w") as output:
        process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _start(host: Host, options: Sequence[str], labels: Mapping[str, str] | None, variables: Mapping[str, str]) -> None:
    """Start Ray under a supervisor, which starts it again whenever a part of it has died; return when it runs."""
    named = ",".join(f"{name}={value}" for name, value in (labels or {}).items())
    command = ["ray", "start", "--block", "--disable-usage-stats", f"--node-ip-address={host.address}", *options]
    command += ["--num-cpus=2", "--object-store-memory=80000000", *([f"--labels={named}"] if named else [])]
    log = host.home / "ray.log"
    log.write_text("")
    host.popen(["sh", "-c", _SUPERVISOR, log, *command], env=variables)
    eventually(lambda: "Ray runtime started" in log.read_text(), f"Ray on {host.name}", seen=log.read_text)
