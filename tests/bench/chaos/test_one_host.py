"""Two minutes of chaos on one host: every part of a service killed and stopped, pools scaled, and nothing altered."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from serve_app.local_cluster import running_services
from tests.bench.chaos.faults import Fault, process_faults
from tests.bench.chaos.run import Plan, run, summary
from tests.bench.chaos.table import markdown
from tests.eventually import eventually
from tests.serve_app.command import ROOT, Command

pytestmark = pytest.mark.cluster

SECONDS = 120.0
STREAMS = 8
CONFIG = """
name: chaos
target: {model: "family:target", dtype: bfloat16, threads: 1, decoder: torch, max_sessions: 16, actors: {replicas: 2}}
draft: {model: "family:draft"}
bundle: "family:bundle"
ingress: {actors: {replicas: 2}}
"""
ROLES = {
    "controller": "ray::ServeController",
    "proxy": "ray::ProxyActor",
    "ingress": "SpeculativeIngress",
    "verifier": "TargetVerifier",
    "draft": ":DraftPool",
    "router": ":TaskRouter",
}


class Served:
    """A service of `taskspec serve`, and commands to it."""

    def __init__(self, home: Path) -> None:
        config = home / "chaos.yaml"
        config.write_text(CONFIG)
        self.command = Command(home, "serve", "--config", str(config), "--port", "0")
        self.url = self.command.match(r"(http://[\d.:]+)")
        [self._service] = [each for each in running_services() if each.url.startswith(self.url)]

    def send(self, role: str, number: signal.Signals) -> list[int]:
        """To one of the processes that run a role, or to all if it lets them go on."""
        found = [process for process in psutil.process_iter() if self._runs(process, ROLES[role])]
        for process in found if number == signal.SIGCONT else found[:1]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return [process.pid for process in found]

    def taskspec(self, *arguments: str) -> str:
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self._service.token_file)}
        return subprocess.run(
            [sys.executable, "-m", "serve_app.cli.main", *arguments, "--address", self._service.address],
            cwd=ROOT,
            env=os.environ | token,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def sessions(self) -> int:
        parts = json.loads(self.taskspec("status", "--json"))["parts"]
        return sum(part["sessions"] or 0 for part in parts if part["name"] == "target")

    def _runs(self, process: psutil.Process, pattern: str) -> bool:
        with suppress(psutil.Error):
            return pattern in " ".join(process.cmdline()) and self.command.owns(process)
        return False


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S", "1")
    served = Served(tmp_path)
    try:
        yield served
    finally:
        served.command.kill()


def test_no_answer_is_altered_or_lost(served: Served, tmp_path: Path) -> None:
    scale = Fault(
        "scale to 0 and back",
        lambda: served.taskspec("scale", "general=0"),
        lambda: served.taskspec("scale", "general=1"),
    )
    faults = [*process_faults(served.send, list(ROLES)), scale]
    plan = Plan([served.url], "chaos", faults, served.sessions, SECONDS, STREAMS)
    verdict, table = asyncio.run(run(plan, tmp_path))
    print("", markdown(table), *summary(verdict), sep="\n")
    assert verdict.violations == []
    assert len(table) == len(faults)
    assert any(request.cut and request.outcome == "answered" for request in verdict.requests)
    eventually(lambda: served.sessions() == 0, "the service holds no session")
