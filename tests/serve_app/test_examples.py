"""The examples run against a service as they stand."""

from __future__ import annotations

import re

import pytest

from serve_app.api.app import create_app
from serve_app.examples import accepted_text, tools
from tests.serve_app.calling import ARGUMENTS, SAID, CallingService
from tests.serve_app.live import live
from tests.serve_app.scripted import ScriptedService, tokens_of

TEXT = "the answer is forty-two"


def test_accepted_text_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    with live(create_app(ScriptedService(tokens_of(TEXT), lengths=[1, 3]))) as url:
        accepted_text.main(f"{url}/v1")
    text, counts = capsys.readouterr().out.splitlines()
    assert re.sub(r"[\[\]]", "", text) == TEXT
    proposed, accepted = int(counts.split()[2]), int(counts.split()[0])
    assert 0 < accepted < proposed
    assert text.count("[") == text.count("]") > 0


def test_calls_are_answered_and_the_answers_sent_back(capsys: pytest.CaptureFixture[str]) -> None:
    service = CallingService()
    with live(create_app(service)) as url:
        tools.main(f"{url}/v1")
    *calls, final = filter(None, capsys.readouterr().out.splitlines())
    assert [call.partition(" -> ")[0] for call in calls] == [f"weather({arguments})" for arguments in ARGUMENTS]
    assert final == SAID
    for call in calls:
        assert f"tool: {call.partition(' -> ')[2]}" in service.prompt
