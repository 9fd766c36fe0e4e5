"""Three hosts with a service of the shipped family behind a balancer: `python -m tests.bench.hosts`, as root.

It asks the service through the proxy of each host and through the balancer, then runs a command beside the hosts, a
shell if there is none. What it made is gone when that ends.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx2 as httpx

from serve_app.local_cluster import raise_on_signals
from tests.bench.hosts import three_hosts
from tests.bench.hosts.cluster import balancer, environment, redis, serve, start_ray, url

CONFIG = """
name: toy
target: {model: "family:target", threads: 1, decoder: torch, actors: {replicas: 2}}
draft: {model: "family:draft"}
ingress: {actors: {replicas: 2}}
"""
QUESTION = {"model": "toy", "messages": [{"role": "user", "content": "What is 17 + 25?"}], "seed": 1, "max_tokens": 32}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hosts", description=__doc__)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="run beside the hosts; by default a shell")
    command = parser.parse_args().command or [os.environ.get("SHELL", "sh")]
    raise_on_signals()
    with tempfile.TemporaryDirectory(prefix="hosts-") as name:
        directory = Path(name)
        with (
            three_hosts(directory, environment(directory)) as hosts,
            redis(directory) as state,
            balancer(directory, hosts) as balanced,
        ):
            start_ray(hosts, redis=state)
            config = directory / "toy.yaml"
            config.write_text(CONFIG)
            serve(hosts[0], config)
            for place in [*map(url, hosts), balanced]:
                print(f"{place}: {answer(place)!r}", flush=True)
            for host in hosts:
                print(f"in {host.name}: nsenter --target {host.pid} --all", flush=True)
            return subprocess.run(command, check=False).returncode


def answer(place: str) -> str:
    response = httpx.post(f"{place}/v1/chat/completions", json=QUESTION, timeout=60, trust_env=False)
    response.raise_for_status()
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


if __name__ == "__main__":
    sys.exit(main())
