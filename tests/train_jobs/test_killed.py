"""A retraining that is killed, at three points or at ten moments, ends in the same bundle as an undisturbed one."""

from __future__ import annotations

import fcntl
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.bundle.store import open_live
from tests.core.bundle.bundles import content
from tests.serve_app.command import Command
from tests.train_jobs.retraining import Retraining, as_short_as_can_be

pytestmark = pytest.mark.soak  # about twelve minutes on two cores, with the retraining they are compared to

PATIENCE = 240.0  # seconds; far more than a stage takes on a slow machine


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Retraining:
    """An undisturbed one, up to its bundle and the report of it."""
    directory = tmp_path_factory.mktemp("finished")
    retraining = Retraining(directory, as_short_as_can_be(directory))
    outcome = retraining.again()
    assert outcome.returncode == 0, outcome.stderr
    return retraining


def killed_when(retraining: Retraining, home: Path, due: Callable[[], bool]) -> None:
    """Run it until `due`, then kill all its processes."""
    running = Command(home, *retraining.command("retrain")[len(Retraining.TASKSPEC) :])
    try:
        deadline = time.monotonic() + PATIENCE
        while not due():
            assert running.process.poll() is None, "it ended too early: " + "".join(running.process.communicate())
            assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: the moment to kill it"
            time.sleep(0.0005)
    finally:
        running.processes()
        running.kill()
        for left in running.left():
            shutil.rmtree(left, ignore_errors=True)


def begun(finished: Retraining, directory: Path) -> Retraining:
    """A retraining with the first stages and the base of a finished one, to be killed in what follows."""
    retraining = Retraining(directory, as_short_as_can_be(directory))
    for part in ("collect", "partition", "align/base-seed-0", "align/drafts/base-seed-0"):
        shutil.copytree(finished.work / part, retraining.work / part)
    shutil.copy(finished.work / "align" / ".made-for", retraining.work / "align")
    with_costs_of(finished, retraining)
    return retraining


def with_costs_of(finished: Retraining, other: Retraining) -> None:
    """What one has measured the other takes: its own would differ a little, and so would what a bundle says."""
    evaluate = other.work / "evaluate"
    evaluate.mkdir(parents=True)
    for part in (".made-for", "costs.json"):
        shutil.copy(finished.work / "evaluate" / part, evaluate)


def test_killed_inside_align_between_stages_and_inside_publish(
    finished: Retraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    killed = begun(finished, tmp_path)
    align, publish = killed.work / "align", killed.work / "publish"

    killed_when(killed, tmp_path, lambda: any(align.glob("*/checkpoint.pt")))
    assert not (align / ".done").exists()

    killed_when(killed, tmp_path, (align / ".done").exists)
    assert not (killed.work / "evaluate" / ".done").exists()

    killed.bundles.mkdir()
    with (killed.bundles / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # so that the moment is not missed
        killed_when(killed, tmp_path, (publish / ".made-for").exists)
    assert open_live(killed.bundles).bundle is None

    outcome = killed.again()
    assert outcome.returncode == 0, outcome.stderr
    assert killed.version == finished.version
    assert content(killed.workspace.router()) == content(finished.workspace.router())


def test_killed_at_ten_random_moments(finished: Retraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published is whole after each of them, or nothing is."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    killed, moments = Retraining(tmp_path, as_short_as_can_be(tmp_path)), random.Random(7)
    with_costs_of(finished, killed)
    for _ in range(10):
        moment = time.monotonic() + moments.uniform(4.0, 30.0)
        killed_when(killed, tmp_path, lambda moment=moment: time.monotonic() >= moment)  # type: ignore[misc]
        live = open_live(killed.bundles).bundle if killed.bundles.exists() else None
        assert live is None or live.manifest.version == finished.version

    outcome = killed.again()
    assert outcome.returncode == 0, outcome.stderr
    assert killed.version == finished.version
