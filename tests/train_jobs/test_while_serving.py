"""A retraining on a cluster that serves requests: none fails, no answer changes, and others reach nothing of it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import psutil
import pytest
from openai import OpenAI

from core.bundle.store import open_live
from tests.family.corpora import TASKS, items
from tests.serve_app.command import Command
from tests.serve_app.listeners import Listening, listeners
from tests.train_jobs.retraining import TINY

pytestmark = pytest.mark.soak  # four minutes: a service and a whole retraining share two cores
PROMPTS = [items(task, 1, 5, "held_out")[0].prompt for task in TASKS]


def ask(client: OpenAI, number: int, *, speculate: bool) -> str:
    answer = client.chat.completions.create(
        model="taskspec-family",
        messages=[{"role": "user", "content": PROMPTS[number % len(PROMPTS)]}],
        seed=number % len(PROMPTS),
        temperature=float(number % 2),
        max_tokens=120,
        extra_body={"speculation": {"enabled": speculate}},
    )
    return str(answer.choices[0].message.content)


def told(serving: Command) -> tuple[str, list[str]]:
    """The base URL, and the command that retrains on this cluster, as the service prints them."""
    url = serving.match(r"base_url: (\S+)")
    return url, shlex.split(serving.line(lambda line: "taskspec retrain" in line).strip())


def test_a_ray_job_on_the_cluster_that_serves(tmp_path: Path) -> None:
    serving = Command(tmp_path, "serve", "--port", "0")
    try:
        url, words = told(serving)
        assert words[words.index("--address") + 1] == "auto"
        client = OpenAI(base_url=url, api_key="unused", max_retries=0)
        alone = [ask(client, number, speculate=False) for number in range(len(PROMPTS))]
        where = ["--work", str(tmp_path / "work"), "--bundles", str(tmp_path / "bundles")]
        command = [*serving.process.args[:3], "retrain", "--config", str(TINY), *where, "--address", "auto"]  # type: ignore[index]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as job:
            asked, reachable = 0, set[Listening]()
            while job.poll() is None:
                processes = (process for process in psutil.process_iter() if serving.owns(process))
                reachable |= {one for one in listeners(processes) if not one.on_loopback}
                assert ask(client, asked, speculate=True) == alone[asked % len(PROMPTS)]
                asked += 1
        assert job.returncode == 0
        assert asked > len(PROMPTS)
        assert reachable == set()
        assert open_live(tmp_path / "bundles").bundle is not None
    finally:
        serving.kill()
