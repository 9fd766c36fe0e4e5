"""Jobs on a cluster started with `ray start`: a head with a dashboard that requires a token."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest

from core.errors import ConfigError
from serve_app.local_cluster import free_port
from tests.serve_app.command import ROOT, Command
from tests.train_jobs.small import SMALL, written
from train_jobs.cli import job
from train_jobs.config import RetrainConfig

TOKEN = "5f" * 32


class Cluster(NamedTuple):
    url: str
    token: Path

    def statuses(self) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        jobs = httpx.get(f"{self.url}/api/jobs/", headers=headers).raise_for_status().json()
        return {job["submission_id"]: job["status"] for job in jobs if job["submission_id"]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    names = ("port", "dashboard-port", "dashboard-agent-listen-port", "ray-client-server-port")
    ports = {name: free_port("127.0.0.1") for name in names}
    with tempfile.TemporaryDirectory(prefix="ts") as directory:  # a short path: Ray's sockets lie in it
        token = Path(directory) / "token"
        token.write_text(TOKEN)
        environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        head = subprocess.Popen(
            [Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--disable-usage-stats"]
            + ["--num-cpus=2", "--object-store-memory=80000000", f"--temp-dir={directory}"]
            + [f"--{name}={port}" for name, port in ports.items()],
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{ports['dashboard-port']}"
            _wait_for(url, head)
            yield Cluster(url, token)
        finally:
            head.terminate()
            head.wait(timeout=60)


def _wait_for(url: str, head: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        assert head.poll() is None
        try:
            httpx.get(f"{url}/api/version")
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the dashboard does not come up")


class Submission(NamedTuple):
    code: int
    out: str
    err: str


def submitted(command: Command) -> Submission:
    try:
        out, err = command.process.communicate(timeout=240)
        return Submission(command.process.returncode, out, err)
    finally:
        command.kill()


def config(directory: Path, **collect: Any) -> Path:
    places = {name: str(directory / name) for name in ("work", "bundles")}
    return written(directory, SMALL | places | {"collect": SMALL["collect"] | collect})


@pytest.fixture
def known(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(cluster.token))
    return cluster


@pytest.mark.cluster
@pytest.mark.soak
def test_what_a_person_can_mend_reaches_them_and_the_command_fails_as_the_job_did(
    known: Cluster, tmp_path: Path
) -> None:
    file = config(tmp_path, files=["absent.jsonl"])
    ended = submitted(Command(tmp_path, "retrain", "--config", str(file), "--address", known.url))
    assert ended.code == 1, ended.err
    assert f"taskspec: {ROOT / 'absent.jsonl'} cannot be read: No such file or directory\n" in ended.out
    assert "Traceback" not in ended.out
    name = ended.out.splitlines()[-1].split()[1]
    assert ended.out.splitlines()[-1].startswith(f"Job {name} failed; the same command resumes from")
    assert known.statuses()[name] == "FAILED"
    assert TOKEN not in ended.out + ended.err


@pytest.mark.cluster
@pytest.mark.soak
@pytest.mark.parametrize("in_background", [False, True])
def test_sigterm_as_ctrl_c_stops_the_job_and_says_how_to_go_on(
    known: Cluster, tmp_path: Path, in_background: bool
) -> None:
    """A shell starts background jobs with SIGINT ignored."""
    file = config(tmp_path)
    command = Command(tmp_path, "retrain", "--config", str(file), "--address", known.url, in_background=in_background)
    try:
        command.line(lambda line: line.startswith("collect: begun"))
        command.process.send_signal(signal.SIGTERM)
        last = submitted(command).out.splitlines()[-1]
        name = last.removeprefix("Stopped job ").split(";")[0]
        assert last == f"Stopped job {name}; the same command resumes from {tmp_path / 'work'}"
        assert command.process.returncode == 130
        assert known.statuses()[name] == "STOPPED"
    finally:
        command.kill()


@pytest.mark.cluster
@pytest.mark.soak
@pytest.mark.parametrize(("given", "said"), [(None, "none"), ("0" * 64, "a wrong one")])
def test_a_missing_or_wrong_token_is_told_with_what_to_set_and_never_shown(
    given: str | None, said: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    if given is not None:
        (tmp_path / "token").write_text(given)
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    file = config(tmp_path)
    ended = submitted(Command(tmp_path, "retrain", "--config", str(file), "--address", cluster.url))
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err == (
        f"taskspec: {cluster.url} requires a token and got {said}.\n"
        "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to a file that holds the cluster's token.\n"
    )


@pytest.mark.parametrize("address", ["http://127.0.0.1:{port}", "127.0.0.1:{port}", "auto"])
def test_an_address_without_a_dashboard_is_told_in_a_line(address: str) -> None:
    with socket() as held:
        held.bind(("127.0.0.1", 0))  # a port that nobody listens on, nor can begin to
        url = address.format(port=held.getsockname()[1])
        with pytest.raises(ConfigError, match="give the URL of the cluster's dashboard"):
            job.submit(RetrainConfig(**SMALL), (), url, as_json=False)


def test_paths_become_absolute_and_names_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "draft").mkdir()
    changes: dict[str, Any] = {"draft": "draft", "router": {"general": "g.jsonl"}, "collect": {"files": ["p.jsonl"]}}
    given = RetrainConfig(**SMALL | changes | {"work": "/shared/../work"})
    found = given.anchored()
    assert (found.collect.files, found.router.general) == ((tmp_path / "p.jsonl",), tmp_path / "g.jsonl")
    assert (found.work, found.bundles) == (Path("/shared/../work"), tmp_path / "bundles")
    assert (found.draft, found.target, found.partition) == (str(tmp_path / "draft"), given.target, given.partition)


def test_the_job_alone_says_what_submits_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(job.CONFIG, raising=False)
    monkeypatch.setattr(sys, "argv", ["job"])
    with pytest.raises(SystemExit) as ended:
        job.main()
    assert ended.value.code == 2
    assert "submit this job with `taskspec retrain --address URL`" in capsys.readouterr().err
