"""Clients that cannot share an environment with the others: instructor, and those in JavaScript and Java."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Service
from weather import MESSAGES, REPORT, SAY, TOOL, Place, Weather

HERE = Path(__file__).parent
INSTALLED = ROOT / "build" / "clients"
INSTRUCTOR = INSTALLED / "instructor" / "bin" / "python"
PACKAGES = INSTALLED / "node"
NODE, JAVA = shutil.which("node"), shutil.which("java")
ASKED = json.dumps(
    {"say": SAY, "messages": MESSAGES, "tool": TOOL, "schema": Weather.model_json_schema(), "report": REPORT}
)

needs_node = pytest.mark.skipif(
    NODE is None or not (PACKAGES / "node_modules").exists(), reason="Node is not installed, or npm got no packages"
)


def printed(command: list[Any], script: str | None = None) -> Any:
    """What the command prints, read as JSON."""
    ended = subprocess.run(
        list(map(str, command)), input=script, cwd=PACKAGES, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def of_node(script: str, *arguments: str) -> Any:
    """What the script prints; read from standard input it finds the packages of the directory that Node runs in."""
    return printed([NODE, "--input-type=module", "-", *arguments], (HERE / script).read_text())


def test_instructor_parses_in_every_mode(service: Service) -> None:
    answers = printed([INSTRUCTOR, HERE / "instructor_client.py", service.v1, service.model])
    assert len(answers) == 5
    assert all(Weather.model_validate(answer) for answer in answers.values())


@needs_node
def test_openais_client_for_node(service: Service) -> None:
    answers = of_node("openai_client.mjs", service.v1, service.model, ASKED)
    assert answers["chat"]
    assert answers["chat_streamed"] == answers["chat"]
    assert Place.model_validate_json(answers["call"]["arguments"])
    assert answers["call_streamed"]["arguments"] == answers["call"]["arguments"]
    assert isinstance(answers["object"], dict)
    assert Weather.model_validate(answers["parsed"])
    assert answers["response"]


@needs_node
def test_vercels_ai_sdk(service: Service, scripted: Service) -> None:
    answers = of_node("vercel_client.mjs", service.v1, service.model, ASKED, scripted.v1, scripted.model)
    assert answers["chat"]
    assert answers["chat_streamed"] == answers["chat"]
    assert Place.model_validate(answers["call"])
    assert isinstance(answers["object"], dict)
    assert Weather.model_validate(answers["parsed"])
    assert answers["parsed_streamed"] == answers["parsed"]
    said = {"cities": ["Oslo"], "reasoning": "One place, one call.", "text": "It is seven degrees."}
    assert answers["agent"] == said


@pytest.mark.skipif(JAVA is None, reason="Java is not installed")
def test_javas_own_client(service: Service) -> None:
    command = [JAVA, HERE / "JavaClient.java", service.v1, service.model, SAY]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    statuses, bodies = zip(*(line.split(" ", 1) for line in ended.stdout.splitlines()), strict=True)
    assert statuses == ("200",) * 5, bodies
    chat, stream, completion, response, message = bodies
    chunks = [json.loads(event) for event in stream.split("data: ")[1:-1]]
    said = json.loads(chat)["choices"][0]["message"]["content"]
    assert said
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]) == said
    assert json.loads(completion)["choices"][0]["text"]
    assert json.loads(response)["output"][0]["content"][0]["text"]
    assert json.loads(message)["content"][0]["text"]
