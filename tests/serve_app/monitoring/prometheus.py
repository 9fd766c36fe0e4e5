"""Debian's Prometheus on this machine, for as long as a test or a benchmark needs it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import yaml

from serve_app.local_cluster import free_port
from tests.eventually import eventually

MISSING = " and ".join(name for name in ("prometheus", "promtool") if shutil.which(name) is None)


class Series(NamedTuple):
    """Labels, and values by Unix time."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class Prometheus(NamedTuple):
    """One that runs."""

    url: str

    def query(self, expr: str) -> list[Series]:
        """What an expression is now."""
        return [Series(one["metric"], [_point(one["value"])]) for one in self._ask("query", query=expr)]

    def range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """What it was from `start` to `end`, every `step` seconds."""
        found = self._ask("query_range", query=expr, start=start, end=end, step=step)
        return [Series(one["metric"], list(map(_point, one["values"]))) for one in found]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with its `health`, and of an alert its `state`."""
        response = httpx.get(f"{self.url}/api/v1/rules", timeout=30, trust_env=False)
        return [rule for group in response.json()["data"]["groups"] for rule in group["rules"]]

    def _ask(self, path: str, **parameters: object) -> list[dict[str, Any]]:
        response = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30, trust_env=False)
        answer = response.json()
        assert answer["status"] == "success", f"{parameters}: {answer}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found


@contextmanager
def prometheus(directory: Path, config: Mapping[str, object]) -> Iterator[Prometheus]:
    """One with this configuration, which has taken it in."""
    file, log, address = (
        directory / "prometheus.yml",
        directory / "prometheus.log",
        f"127.0.0.1:{free_port('127.0.0.1')}",
    )
    file.write_text(yaml.safe_dump(dict(config)))
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={directory / 'tsdb'}"]
    with log.open("wb") as lines:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=lines, stderr=lines)
    try:
        server = Prometheus(f"http://{address}")
        eventually(lambda: process.poll() is not None or _ready(server), "Prometheus is ready", seen=log.read_text)
        assert process.poll() is None, log.read_text()
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


def _ready(server: Prometheus) -> bool:
    try:
        return httpx.get(f"{server.url}/-/ready", timeout=2, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _point(value: tuple[float, str]) -> tuple[float, float]:
    return float(value[0]), float(value[1])
