"""The README's walk-through, executed as it stands: traffic drifts, a retraining follows, its bundle is taken up.

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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest

from core.bundle.store import open_live, open_version
from core.tasks.identity import TaskCentroids, TaskChange, compare
from tests.serve_app.command import ROOT
from train_jobs.family.corpora import TASKS, items

pytestmark = [pytest.mark.cluster, pytest.mark.soak]  # a quarter of an hour: two retrainings beside a service

README = ROOT / "serve_app" / "README.md"
SECTION = "## A service that learns from its traffic"
KNOWN, NEW = TASKS[:4], TASKS[4:]
CONCURRENCY = 8
PATIENCE = 900.0
URL = "http://127.0.0.1:8000"


class Script(NamedTuple):
    """The section's files by name, and its blocks of commands."""

    files: dict[str, str]
    blocks: list[str]


def script() -> Script:
    section = README.read_text().split(SECTION)[1].split("\n## ")[0]
    files = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", section, re.DOTALL))
    return Script(files, re.findall(r"```bash\n(.*?)```", section, re.DOTALL))


class Answer(NamedTuple):
    """What was asked, and got."""

    at: float
    task: str
    number: int
    tokens: list[int]
    per_pass: float | None


Span = tuple[float, float]  # of the monotonic clock


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


def prompts(tasks: Sequence[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Of every task in turn."""
    each = [[(task, item.prompt) for item in items(task, count, seed)] for task in tasks]
    return [one for row in zip(*each, strict=True) for one in row]


@contextmanager
def traffic(asked: list[tuple[str, str]], found: list[Answer], *, plain: bool = False) -> Iterator[None]:
    """Ask all the time, and again from the start, until the block is over. Every answer is a 200."""
    over = Event()

    def ask(first: int) -> None:
        with httpx.Client(base_url=URL, timeout=120, trust_env=False) as client:
            turn = first
            while not over.is_set():
                found.append(_asked(client, asked, turn % len(asked), plain=plain))
                turn += CONCURRENCY

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        clients = [pool.submit(ask, first) for first in range(CONCURRENCY)]
        try:
            yield
        finally:
            over.set()
        for client in clients:
            client.result()


def _asked(client: httpx.Client, asked: list[tuple[str, str]], number: int, *, plain: bool) -> Answer:
    task, prompt = asked[number]
    body: dict[str, Any] = {
        "model": "mine",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 80,
        "seed": number,
        "temperature": number % 2,
        "store": not plain,
    }
    if plain:
        body["speculation"] = {"enabled": False}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    return Answer(
        time.monotonic(),
        task,
        number,
        answer["choices"][0]["token_ids"],
        answer["usage"]["speculation"]["tokens_per_target_pass"],
    )


def eventually(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(1)


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
    known, everything = prompts(KNOWN, 250, 11), prompts(TASKS, 250, 12)
    try:
        shell.start(serve, "serve.log")
        eventually(healthy, "the service is up")
        answers = list[Answer]()
        log = shell.start(watch, "watch.log")
        with traffic(known, answers):
            eventually((tmp_path / "later" / "reference.json").exists, "there is a reference")
        drifted = time.monotonic()
        with traffic(everything, answers):
            eventually(lambda: "Retraining 0001: drift" in log.read_text(), "drift is found")
            eventually(lambda: _candidates(tmp_path, first.manifest.version), "a candidate is published")
            published = time.monotonic()
            sys.stdout.write(shell.run(take_up))
            [version] = _candidates(tmp_path, first.manifest.version)
            eventually(lambda: (tmp_path / "bundles" / "live").read_text().startswith(version), "it has every prompt")
            swapped = time.monotonic()
            time.sleep(60)
            done = time.monotonic()
            shell.run(scale_and_go_back)
            time.sleep(10)
        plain, asked = list[Answer](), {one.number for one in answers if one.at >= drifted}
        with traffic(everything, plain, plain=True):
            eventually(lambda: {one.number for one in plain} >= asked, "plain answers")
    finally:
        shell.stop()
    expected = {one.number: one.tokens for one in plain}
    since = [one for one in answers if one.at >= drifted]
    assert all(one.tokens == expected[one.number] for one in since)
    changes = _changes(tmp_path, first.manifest.version, version)
    assert [one.after for one in changes if one.what == "kept"] == [one.before for one in changes if one.what == "kept"]
    assert Counter(one.what for one in changes) == {"kept": len(KNOWN), "new": len(NEW)}
    assert _gain(since, NEW, (drifted, published), (swapped, done)) >= 1.25
    assert _gain(since, KNOWN, (drifted, published), (swapped, done)) >= 0.95


def _changes(directory: Path, before: str, after: str) -> tuple[TaskChange, ...]:
    old, new = (open_version(directory / "bundles", version).centroids for version in (before, after))
    assert old is not None
    assert new is not None
    return compare(TaskCentroids.load(old), TaskCentroids.load(new))


def _gain(answers: Sequence[Answer], tasks: Sequence[str], before: Span, after: Span) -> float:
    """Tokens per target pass of answers in the later span, times those in the earlier one."""
    earlier, later = (
        [one.per_pass for one in answers if one.task in tasks and since <= one.at < until and one.per_pass]
        for since, until in (before, after)
    )
    gain = sum(later) / len(later) / (sum(earlier) / len(earlier))
    sys.stdout.write(f"{', '.join(tasks)}: {gain:.2f} times, {len(earlier)} answers before and {len(later)} after\n")
    return gain


def _candidates(directory: Path, live: str) -> list[str]:
    return [file.stem for file in (directory / "bundles" / "manifests").glob("*.json") if file.stem != live]
