"""A service of `taskspec serve` on this machine, the processes that run its parts, and commands to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from serve_app.local_cluster import running_services
from tests.eventually import eventually
from tests.serve_app.command import ROOT, Command

ROLES = {  # part: what a command line has that runs it
    "controller": "ray::ServeController",
    "proxy": "ray::ProxyActor",
    "ingress": "SpeculativeIngress",
    "verifier": "TargetVerifier",
    "draft": ":DraftPool",
    "router": ":TaskRouter",
}


def target_sessions(status: Callable[[], str]) -> int:
    """Those that the target holds, as soon as it tells; `status` calls `taskspec status --json`."""
    told = list[int | None]()

    def tells() -> bool:
        told[:] = [part["sessions"] for part in json.loads(status())["parts"] if part["name"] == "target"]
        return None not in told

    eventually(tells, "the target tells its sessions")
    return sum(number or 0 for number in told)


class Served:
    """A service of `taskspec serve`, and commands to it."""

    def __init__(self, home: Path, settings: str) -> None:
        config = home / "service.yaml"
        config.write_text(settings)
        self.command = Command(home, "serve", "--config", str(config), "--port", "0")
        try:
            self.url = self.command.match(r"(http://[\d.:]+)")
        except BaseException:  # interrupted, too: nobody else can end it yet
            self.command.kill()
            raise
        [self._service] = [each for each in running_services() if each.url.startswith(self.url)]

    def send(self, role: str, number: signal.Signals) -> list[int]:
        """To one of the processes that run a role, or to all if it lets them go on."""
        found = self.processes(ROLES[role])
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
        return target_sessions(lambda: self.taskspec("status", "--json"))

    def processes(self, pattern: str = "") -> list[psutil.Process]:
        """Those of the service whose command line has `pattern`."""
        return [process for process in psutil.process_iter() if self._runs(process, pattern)]

    def _runs(self, process: psutil.Process, pattern: str) -> bool:
        with suppress(psutil.Error):
            return pattern in " ".join(process.cmdline()) and self.command.owns(process)
        return False
