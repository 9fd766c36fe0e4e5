"""Tools, reasoning and structured answers through OpenAI's own client."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.serve_app.calling import ARGUMENTS, INTERLEAVED, PARAMETERS, SAID, THOUGHT, CallingService
from tests.serve_app.clients import openai_client

TOOL = {"type": "function", "name": "weather", "description": "of a city", "parameters": PARAMETERS, "strict": False}
OTHER = {**TOOL, "name": "time"}
ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]}
ASKED: dict[str, Any] = {"model": "org/toy", "input": "the weather?", "tools": [TOOL]}


class City(BaseModel):
    city: str


def said(response: Any) -> list[tuple[str, str]]:
    return [
        (item.name, item.arguments) if item.type == "function_call" else (item.type, item.content[0].text.strip())
        for item in response.output
    ]


ALL = [("reasoning", THOUGHT), ("message", SAID), *[("weather", given) for given in ARGUMENTS]]


@pytest.mark.parametrize("lengths", [(1,), (1, 3, 2), (7, 30)])
async def test_calls_and_reasoning_are_items_whole_and_streamed(lengths: tuple[int, ...]) -> None:
    async with openai_client(CallingService(lengths=lengths)) as client:
        whole = await client.responses.create(**ASKED)
        async with client.responses.stream(**ASKED) as stream:
            final = await stream.get_final_response()
    assert said(whole) == said(final) == ALL
    calls = [item.call_id for item in whole.output if item.type == "function_call"]
    assert len(set(calls)) == 2
    assert whole.usage.output_tokens_details.reasoning_tokens > 0
    assert [tool.name for tool in whole.tools] == ["weather"]


@pytest.mark.parametrize("lengths", [(1,), (1, 3, 2), (5,), (7, 30), (500,)])
async def test_text_between_calls_stays_between_them_however_long_the_runs_are(lengths: tuple[int, ...]) -> None:
    async with openai_client(CallingService(INTERLEAVED, lengths)) as client:
        whole = await client.responses.create(**ASKED)
        async with client.responses.stream(**ASKED) as stream:
            final = await stream.get_final_response()
    first, second = (("weather", given) for given in ARGUMENTS)
    between, end = ("message", "And Rome."), ("message", "Done.")
    assert said(whole) == said(final) == [*ALL[:2], first, between, second, end]


async def test_the_results_of_calls_are_sent_back() -> None:
    service = CallingService()
    async with openai_client(service) as client:
        first = await client.responses.create(**ASKED)
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "rain"}
            for item in first.output
            if item.type == "function_call"
        ]
        await client.responses.create(**{**ASKED, "input": [*first.output, *results]})
    turn = f"assistant: <think>\n{THOUGHT}\n</think>\n{SAID}"
    assert turn in service.prompt
    assert service.prompt.count("<tool_call>") == 2
    assert service.prompt.endswith("tool: rain\ntool: rain\nassistant:")


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({}, False),
        ({"tool_choice": "auto"}, False),
        ({"tool_choice": "none"}, False),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": {"type": "function", "name": "weather"}}, True),
        ({"parallel_tool_calls": False}, True),
        ({"tool_choice": ALLOWED}, False),
        ({"tool_choice": {**ALLOWED, "mode": "required"}}, True),
        ({"tool_choice": ALLOWED, "tools": [OTHER, TOOL]}, True),
        ({"tools": [{**TOOL, "strict": True}]}, True),
        ({"text": {"format": {"type": "json_object"}}, "tools": []}, True),
        ({"text": {"format": {"type": "text"}}, "tools": []}, False),
    ],
)
async def test_what_must_be_called_or_said_is_held_to_a_grammar(fields: dict[str, Any], held: bool) -> None:
    service = CallingService()
    async with openai_client(service) as client:
        response = await client.responses.create(**{**ASKED, **fields})
    assert bool(service.asked[-1].params.grammar) == held
    assert ('"name": "weather"' in service.prompt) == (fields.get("tool_choice") != "none" and "text" not in fields)
    if "tool_choice" in fields:
        choice = response.tool_choice
        assert (choice if isinstance(choice, str) else choice.model_dump()) == fields["tool_choice"]


async def test_a_structured_answer_is_parsed() -> None:
    service = CallingService('{"city": "Oslo"}')
    async with openai_client(service) as client:
        response = await client.responses.parse(model="org/toy", input="where?", text_format=City)
        async with client.responses.stream(model="org/toy", input="where?", text_format=City) as stream:
            final = await stream.get_final_response()
    assert response.output_parsed == final.output_parsed == City(city="Oslo")
    assert response.text.format.name == "City"
    assert "city" in service.asked[-1].params.grammar


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "a"}}}}),
        ("tools[0].parameters", {"tools": [{**TOOL, "parameters": {"type": "array"}}]}),
        ("tools[1].parameters", {"tools": [OTHER, {**TOOL, "strict": True, "parameters": {"$ref": "#/x"}}]}),
        ("tools[1].name", {"tools": [TOOL, TOOL]}),
        ("tools[0].name", {"tools": [{**TOOL, "name": "a b"}]}),
        ("tool_choice.name", {"tool_choice": {"type": "function", "name": "time"}}),
        ("tool_choice", {"tools": [], "tool_choice": "required"}),
        ("input[0].call_id", {"input": [{"type": "function_call_output", "output": "rain"}]}),
        ("reasoning.effort", {"reasoning": {"effort": "huge"}}),
    ],
)
async def test_the_field_at_fault_is_named(param: str, fields: dict[str, Any]) -> None:
    service = CallingService()
    async with openai_client(service) as client:
        with pytest.raises(openai.BadRequestError) as refusal:
            await client.responses.create(**{**ASKED, **fields})
    assert str(refusal.value.param).startswith(param)
    assert "function" not in refusal.value.message.partition("'tools[")[2]
    assert not service.asked


async def test_the_effort_reaches_the_chat_template() -> None:
    service = CallingService()
    async with openai_client(service) as client:
        await client.responses.create(**ASKED, reasoning={"effort": "none"})
        assert service.prompt.endswith("</think>\n\n")
        await client.responses.create(**ASKED, reasoning={"effort": "high"})
        assert service.prompt.endswith("assistant:")
