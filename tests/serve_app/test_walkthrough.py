"""The walk-through of learning.md, executed as it stands: traffic drifts, a retraining follows, its bundle is taken up.

A service that knows four of six tasks gets prompts of all six. No answer fails or changes, the two new tasks are found,
the old ones keep their names, and the new bundle brings more tokens per target pass.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import pytest

from core.bundle.store import open_live, open_version
from core.tasks.identity import TaskCentroids, TaskChange, compare
from tests.eventually import eventually
from tests.family.corpora import TASKS
from tests.serve_app.command import ROOT
from tests.serve_app.traffic import PATIENCE, Answer, Span, Traffic, gain, prompts

pytestmark = [pytest.mark.cluster, pytest.mark.soak]  # half an hour to an hour: two retrainings beside a service

PAGE = ROOT / "serve_app" / "learning.md"
SECTION = "## A service that learns from its traffic"
KNOWN, NEW = TASKS[:4], TASKS[4:]
URL = "http://127.0.0.1:8000"


class Script(NamedTuple):
    """The section's files by name, and its blocks of commands."""

    files: dict[str, str]
    blocks: list[str]


def script() -> Script:
    section = PAGE.read_text().split(SECTION)[1].split("\n## ")[0]
    files = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", section, re.DOTALL))
    return Script(files, re.findall(r"```bash\n(.*?)```", section, re.DOTALL))


class Shell:
    """Runs the blocks in a directory, in sessions of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self._environment = os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, block: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", block],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, block: str, log: str) -> Path:
        """In the background; the file with its output."""
        file = self._directory / log
        with file.open("wb") as out:
            self._running.append(
                subprocess.Popen(
                    ["bash", "-ec", f"exec {block}"],
                    cwd=self._directory,
                    env=self._environment,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )
        return file

    def stop(self) -> None:
        for process in reversed(self._running):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(120)


def healthy() -> bool:
    try:
        return httpx.get(f"{URL}/healthz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_a_service_learns_from_its_traffic(tmp_path: Path) -> None:
    files, blocks = script()
    retrain_and_serve, watch, take_up, scale_and_go_back = blocks
    retrain, serve = retrain_and_serve.strip().split("\n")
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    lines = [json.dumps({"prompt": prompt}, ensure_ascii=False) for _, prompt in prompts(KNOWN, 120, 3)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    shell = Shell(tmp_path)
    shell.run(retrain)
    first = open_live(tmp_path / "bundles").bundle
    assert first is not None
    everything = Traffic(URL, "mine", prompts(TASKS, 300, 12))
    try:
        shell.start(serve, "serve.log")
        eventually(healthy, "the service is up", PATIENCE)
        answers = list[Answer]()
        log = shell.start(watch, "watch.log")
        with Traffic(URL, "mine", prompts(KNOWN, 300, 11)).flowing(answers) as flow:
            flow.eventually((tmp_path / "later" / "reference.json").exists, "there is a reference")
        drifted = time.monotonic()
        with everything.flowing(answers) as flow:
            flow.eventually(lambda: "Retraining 0001: drift" in log.read_text(), "drift is found")
            flow.eventually(lambda: _candidates(tmp_path, first.manifest.version), "a candidate is published")
            published = time.monotonic()
            sys.stdout.write(shell.run(take_up))
            [version] = _candidates(tmp_path, first.manifest.version)
            live = tmp_path / "bundles" / "live"
            flow.eventually(lambda: live.read_text().startswith(version), "it has every prompt")
            swapped = time.monotonic()
            time.sleep(60)
            done = time.monotonic()
            shell.run(scale_and_go_back)
            time.sleep(10)
        plain = everything.plain_answers({one.number for one in answers if one.at >= drifted})
    finally:
        shell.stop()
    since = [one for one in answers if one.at >= drifted]
    assert all(one.tokens == plain[one.number] for one in since)
    changes = _changes(tmp_path, first.manifest.version, version)
    assert [one.after for one in changes if one.what == "kept"] == [one.before for one in changes if one.what == "kept"]
    assert Counter(one.what for one in changes) == {"kept": len(KNOWN), "new": len(NEW)}
    assert _gained(since, NEW, (drifted, published), (swapped, done)) >= 1.25
    assert _gained(since, KNOWN, (drifted, published), (swapped, done)) >= 0.95


def _gained(answers: Sequence[Answer], tasks: Sequence[str], before: Span, after: Span) -> float:
    found = gain(answers, tasks, before, after)
    sys.stdout.write(f"{', '.join(tasks)}: {found:.2f} times the tokens per target pass\n")
    return found


def _changes(directory: Path, before: str, after: str) -> tuple[TaskChange, ...]:
    old, new = (open_version(directory / "bundles", version).centroids for version in (before, after))
    assert old is not None
    assert new is not None
    return compare(TaskCentroids.load(old), TaskCentroids.load(new))


def _candidates(directory: Path, live: str) -> list[str]:
    return [file.stem for file in (directory / "bundles" / "manifests").glob("*.json") if file.stem != live]
