"""The snippets of requests.md that continue a cut answer do so, as they stand on the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from core.generation import GenerationRequest
from serve_app.api.app import create_app
from serve_app.http.service import ChoiceRun, Overloaded, Speculation
from tests.eventually import PATIENCE
from tests.serve_app.cutting import Cutting
from tests.serve_app.live import live
from tests.serve_app.scripted import ScriptedService

PAGE = Path(__file__).parents[2] / "serve_app" / "requests.md"
Runs = AsyncGenerator[ChoiceRun, None]
ANSWER = "the answer is forty-two. END of the story"
BODY = {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}]}
CUTS = (3, 4, 0, 2)


class Recovering(ScriptedService):
    """Fails in the middle of its first answers, and refuses the next one."""

    async def generate(self, requests: list[GenerationRequest], speculation: Speculation) -> Runs:
        number = len(self.asked)
        self.failure = Overloaded("no verifier is running") if number < 3 else None
        self.fails_after = 0 if number == 2 else 2
        async for run in super().generate(requests, speculation):
            yield run


def snippet(language: str) -> str:
    """The only one of the section in that language."""
    section = PAGE.read_text().partition("## An answer that was cut")[2].partition("\n## ")[0]
    [found] = re.findall(rf"(?ms)^```{language}\n(.*?)^```", section)
    return str(found)


@pytest.fixture
def cutting() -> Cutting:
    return Cutting(create_app(ScriptedService()), *CUTS)


def test_in_python(cutting: Cutting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    names: dict[str, Any] = {"openai": openai, "httpx2": httpx2, "time": time}
    exec(snippet("python"), names)
    with live(cutting) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        assert "".join(names["stream"](client, **BODY)) == ANSWER
    assert cutting.requests == len(CUTS) + 1


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_in_javascript(cutting: Cutting) -> None:
    asked = "for await (const text of stream(process.argv[1], JSON.parse(process.argv[2]))) process.stdout.write(text);"
    program = snippet("javascript").replace("1000", "1") + asked
    with live(cutting) as url:
        command = ["node", "--input-type=module", "-e", program, f"{url}/v1", json.dumps(BODY)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (run.stdout, run.returncode) == (ANSWER, 0), run.stderr
    assert cutting.requests == len(CUTS) + 1


def test_in_python_a_service_that_fails_for_a_while_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    names: dict[str, Any] = {"openai": openai, "httpx2": httpx2, "time": time}
    exec(snippet("python"), names)
    service = Recovering()
    with live(create_app(service)) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        assert "".join(names["stream"](client, **BODY)) == ANSWER
        with pytest.raises(openai.BadRequestError):
            next(names["stream"](client, **BODY, temperature=9))
    assert len(service.asked) == 4


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_in_javascript_a_service_that_fails_for_a_while_is_asked_again() -> None:
    asked = "for await (const text of stream(process.argv[1], JSON.parse(process.argv[2]))) process.stdout.write(text);"
    waits = "let waits = 0; const setTimeout = (then) => { waits += 1; then(); };"
    program = f"{waits}{snippet('javascript')}{asked} console.error(waits);"
    service = Recovering()
    with live(create_app(service)) as url:
        command = ["node", "--input-type=module", "-e", program, f"{url}/v1", json.dumps(BODY)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (run.stdout, run.stderr.strip()) == (ANSWER, "3")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_javascript_says_why_a_request_is_refused(cutting: Cutting) -> None:
    program = snippet("javascript") + "for await (const text of stream(process.argv[1], {})) ;"
    with live(cutting) as url:
        command = ["node", "--input-type=module", "-e", program, f"{url}/v1"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert run.returncode != 0
    assert "is required" in run.stderr
