"""Ray and a service on hosts, with what an operator has around them: a token, Redis, and a balancer."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.hosts import GATEWAY, Host

PORT = 6379  # of the GCS
HTTP_PORT = 8000
REDIS_PORT = 6380
BALANCED_PORT = 8080
# What a command line has that runs a part, for `Host.processes` and `Host.signal`.
ROLES = {
    "gcs": "/gcs_server ",
    "raylet": "/raylet/raylet ",
    "controller": "ray::ServeController",
    "proxy": "ray::ProxyActor",
    "ingress": "SpeculativeIngress",
    "verifier": "TargetVerifier",
    "draft": ":DraftPool",
    "router": ":TaskRouter",
    "rollout": ":Rollout",
}


def environment(directory: Path) -> dict[str, str]:
    """What every process of the cluster has in its environment; also writes the token of its Ray."""
    token = directory / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_PROXY_USE_GRPC": "1",
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve_app.access.proxy:middlewares",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def start_head(host: Host, labels: Mapping[str, str], **variables: str) -> str:
    """Start Ray's head on a host, which may have run it before; the address of the cluster."""
    _start(host, labels, ["--head", f"--port={PORT}", "--include-dashboard=false"], variables)
    return f"{host.address}:{PORT}"


def join(host: Host, address: str, labels: Mapping[str, str], **variables: str) -> None:
    _start(host, labels, [f"--address={address}"], variables)


def _start(host: Host, labels: Mapping[str, str], options: Sequence[str], variables: Mapping[str, str]) -> None:
    named = ",".join(f"{name}={value}" for name, value in labels.items())
    command = ["ray", "start", "--disable-usage-stats", f"--node-ip-address={host.address}", *options]
    command += ["--num-cpus=2", "--object-store-memory=80000000", *([f"--labels={named}"] if named else [])]
    host.run(command, env=variables)


@contextmanager
def redis(directory: Path) -> Iterator[str]:
    """A Redis beside the hosts, as on a machine of its own; its address."""
    command = ["redis-server", "--bind", GATEWAY, "--port", str(REDIS_PORT), "--protected-mode", "no"]
    with _beside([*command, "--dir", str(directory), "--appendonly", "yes"], directory / "redis.log"):
        yield f"{GATEWAY}:{REDIS_PORT}"


@contextmanager
def _beside(command: Sequence[str], log: Path) -> Iterator[None]:
    """A program in the network of the hosts, on none of them, for as long as the block lasts."""
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait()
