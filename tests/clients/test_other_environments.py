"""Clients that cannot share an environment with the others: instructor, and those in JavaScript."""

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
NODE = shutil.which("node")
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
