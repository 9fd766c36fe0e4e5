"""What a killed command leaves: nothing of the Ray that it had for itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.serve_app.command import ROOT, Command
from tests.train_jobs.small import SMALL, written
from train_jobs.cluster.own_ray import TOKEN_FILE, on

PROGRAM = """
import sys, time
from pathlib import Path
from train_jobs.cluster.own_ray import removed_if_killed
with removed_if_killed(Path(sys.argv[1]), after=0):
    print("in", flush=True)
    if sys.stdin.readline():
        sys.exit()
"""
PATIENCE = 30.0


def started(directory: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    return process


def until_gone(directory: Path) -> bool:
    deadline = time.monotonic() + PATIENCE
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not directory.exists()


def with_token(directory: Path) -> Path:
    directory.mkdir()
    (directory / "token").write_text("5f" * 32)
    return directory


def test_the_directory_of_a_killed_command_is_removed_and_its_shell_ends(tmp_path: Path) -> None:
    directory = with_token(tmp_path / "a directory; with signs")
    process = started(directory)
    [shell] = psutil.Process(process.pid).children()
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert until_gone(directory)
    shell.wait(PATIENCE)
    assert tmp_path.exists()


def test_a_command_that_ends_by_itself_removes_nothing_so(tmp_path: Path) -> None:
    directory = with_token(tmp_path / "ray")
    process = started(directory)
    [shell] = psutil.Process(process.pid).children()
    process.communicate("end\n", timeout=PATIENCE)
    assert not shell.is_running()
    assert (directory / "token").exists()


@contextmanager
def ray_in(directory: Path, *, names_it: bool) -> Iterator[None]:
    """What stands for the start of a Ray: its directory, and the variable that names its token."""
    with_token(directory)
    (directory / "session_latest").mkdir()
    if names_it:
        os.environ[TOKEN_FILE] = str(directory / "token")
    yield


def shells() -> list[psutil.Process]:
    """The children of this process that are shells. One that has just begun has no command line for a moment."""
    children, deadline = psutil.Process().children(), time.monotonic() + PATIENCE
    while not all(one.cmdline() for one in children) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [one for one in children if one.cmdline()[:2] == ["/bin/sh", "-c"]]


@pytest.mark.parametrize(("names_it", "watched"), [(True, 1), (False, 0)])
def test_only_a_directory_that_this_ray_came_with_is_watched(
    names_it: bool, watched: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of the user's may lie anywhere."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("RAY_ENABLE_AUTO_CONNECT", "0")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "home" / "token"))
    with on(ray_in(tmp_path / "ray", names_it=names_it)):
        found = shells()
        assert [one.cmdline()[-1] for one in found] == [str(tmp_path / "ray")] * watched
    assert shells() == []


@pytest.mark.cluster
@pytest.mark.soak
def test_a_killed_retraining_leaves_no_process_and_no_directory(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    command = Command(home, "retrain", "--config", str(written(tmp_path, SMALL)), "--work", str(tmp_path / "work"))
    try:
        command.line(lambda line: line.startswith("collect: begun"))
        assert len(command.processes()) > 3
        command.process.send_signal(signal.SIGKILL)  # to the driver alone
        command.process.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while command.left() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert command.left() == []
    finally:
        command.kill()
