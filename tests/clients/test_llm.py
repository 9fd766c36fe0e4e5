"""Simon Willison's llm, from the command line and as a library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import llm
import pytest
import yaml
from conftest import Service
from weather import ASK, REPORT, SAY, Weather


def install(service: Service, home: Path) -> None:
    """Tell llm of the service, as its documentation says."""
    model = {"model_id": "taskspec", "model_name": service.model, "api_base": service.v1, "api_key_name": "taskspec"}
    given = [{**model, "supports_tools": True, "supports_schema": True}]
    (home / "extra-openai-models.yaml").write_text(yaml.safe_dump(given))
    (home / "keys.json").write_text('{"taskspec": "unused"}')


def said(*options: str) -> str:
    command = [sys.executable, "-m", "llm", "-m", "taskspec", "-o", "seed", "1", "-o", "max_tokens", "200", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_chat_whole_and_streamed(service: Service, tmp_path: Path) -> None:
    install(service, tmp_path)
    whole = said("--no-stream", SAY)
    assert whole
    assert said(SAY) == whole


def test_a_json_object(service: Service, tmp_path: Path) -> None:
    install(service, tmp_path)
    assert isinstance(json.loads(said("-o", "json_object", "1", "-o", "temperature", "0", ASK)), dict)


def test_an_answer_of_a_schema(service: Service, tmp_path: Path) -> None:
    install(service, tmp_path)
    assert Weather.model_validate_json(said("--schema", json.dumps(Weather.model_json_schema()), ASK))


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_is_called_and_its_result_answered(scripted: Service, tmp_path: Path, stream: bool) -> None:
    install(scripted, tmp_path)
    cities = []

    def weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return REPORT

    chain = llm.get_model("taskspec").chain(ASK, tools=[weather], stream=stream)
    assert chain.text().endswith("It is seven degrees.")
    assert cities == ["Oslo"]
