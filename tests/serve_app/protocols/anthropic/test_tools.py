"""Tools, thinking and structured answers through Anthropic's own client."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel

from tests.serve_app.calling import ARGUMENTS, INTERLEAVED, PARAMETERS, SAID, THOUGHT, CallingService
from tests.serve_app.protocols.anthropic.clients import anthropic_client

TOOL = {"name": "weather", "description": "of a city", "input_schema": PARAMETERS}
USER = {"role": "user", "content": "the weather?"}
ASKED: dict[str, Any] = {"model": "org/toy", "max_tokens": 500, "messages": [USER], "tools": [TOOL]}
INPUTS = [json.loads(given) for given in ARGUMENTS]


class City(BaseModel):
    city: str


def said(message: Any) -> list[Any]:
    shown = {"thinking": lambda block: block.thinking.strip(), "text": lambda block: block.text.strip()}
    return [shown.get(block.type, lambda block: (block.name, block.input))(block) for block in message.content]


@pytest.mark.parametrize("lengths", [(1,), (1, 3, 2), (7, 30)])
async def test_calls_and_thinking_are_blocks_whole_and_streamed(lengths: tuple[int, ...]) -> None:
    async with anthropic_client(CallingService(lengths=lengths)) as client:
        whole = await client.messages.create(**ASKED)
        async with client.messages.stream(**ASKED) as stream:
            final = await stream.get_final_message()
    for message in (whole, final):
        assert said(message) == [THOUGHT, SAID, *[("weather", given) for given in INPUTS]]
        assert message.stop_reason == "tool_use"
    assert len({block.id for block in whole.content if block.type == "tool_use"}) == 2
    assert whole.usage.output_tokens_details.thinking_tokens > 0


@pytest.mark.parametrize("lengths", [(1,), (1, 3, 2), (5,), (7, 30), (500,)])
async def test_text_between_calls_stays_between_them_however_long_the_runs_are(lengths: tuple[int, ...]) -> None:
    async with anthropic_client(CallingService(INTERLEAVED, lengths)) as client:
        whole = await client.messages.create(**ASKED)
        async with client.messages.stream(**ASKED) as stream:
            final = await stream.get_final_message()
    first, second = (("weather", given) for given in INPUTS)
    assert said(whole) == said(final) == [THOUGHT, SAID, first, "And Rome.", second, "Done."]


async def test_names_of_tools_are_as_long_as_those_of_an_agents_servers() -> None:
    name = f"mcp__{'server' * 10}__{'tool' * 9}".ljust(128, "_")
    call = f'<tool_call>\n{{"name": "{name}", "arguments": {ARGUMENTS[0]}}}\n</tool_call>'
    async with anthropic_client(CallingService(call)) as client:
        message = await client.messages.create(**{**ASKED, "tools": [{**TOOL, "name": name}]})
    assert said(message) == [(name, INPUTS[0])]


async def test_the_results_of_calls_are_sent_back() -> None:
    service = CallingService()
    async with anthropic_client(service) as client:
        first = await client.messages.create(**ASKED)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "rain"}
            for block in first.content
            if block.type == "tool_use"
        ]
        turns = [USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        await client.messages.create(**{**ASKED, "messages": turns})
        counted = await client.messages.count_tokens(model="org/toy", messages=turns, tools=[TOOL])
    assert f"assistant: <think>\n{THOUGHT}\n</think>\n{SAID}" in service.prompt
    assert service.prompt.count("<tool_call>") == 2
    assert service.prompt.endswith("tool: rain\ntool: rain\nassistant:")
    assert counted.input_tokens == service.asked[-1].prompt_length


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({}, False),
        ({"tool_choice": {"type": "auto"}}, False),
        ({"tool_choice": {"type": "none"}}, False),
        ({"tool_choice": {"type": "any"}}, True),
        ({"tool_choice": {"type": "tool", "name": "weather"}}, True),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, True),
        ({"tools": [{**TOOL, "strict": True}]}, True),
    ],
)
async def test_what_must_be_called_is_held_to_a_grammar(fields: dict[str, Any], held: bool) -> None:
    service = CallingService()
    async with anthropic_client(service) as client:
        await client.messages.create(**{**ASKED, **fields})
    assert bool(service.asked[-1].params.grammar) == held
    assert ('"name": "weather"' in service.prompt) == (fields.get("tool_choice") != {"type": "none"})


async def test_a_structured_answer_is_parsed() -> None:
    service = CallingService('{"city": "Oslo"}')
    async with anthropic_client(service) as client:
        message = await client.messages.parse(model="org/toy", max_tokens=50, messages=[USER], output_format=City)
        async with client.messages.stream(
            model="org/toy", max_tokens=50, messages=[USER], output_format=City
        ) as stream:
            final = await stream.get_final_message()
    assert message.parsed_output == final.parsed_output == City(city="Oslo")
    assert "city" in service.asked[-1].params.grammar


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("tools[0].input_schema", {"tools": [{**TOOL, "input_schema": {"type": "array"}}]}),
        (
            "tools[0].input_schema",
            {"tools": [{**TOOL, "strict": True, "input_schema": {"properties": {"a": {"$ref": "#/x"}}}}]},
        ),
        ("tools[1].name", {"tools": [TOOL, TOOL]}),
        ("tool_choice.name", {"tool_choice": {"type": "tool", "name": "time"}}),
        (
            "output_config.format",
            {"tools": [], "output_config": {"format": {"type": "json_schema", "schema": {"type": "a"}}}},
        ),
    ],
)
async def test_the_field_at_fault_is_named(field: str, fields: dict[str, Any]) -> None:
    service = CallingService()
    async with anthropic_client(service) as client:
        with pytest.raises(anthropic.BadRequestError) as refusal:
            await client.messages.create(**{**ASKED, **fields})
    assert field in refusal.value.body["error"]["message"]  # type: ignore[index]
    assert not service.asked


async def test_the_chat_template_is_told_not_to_think() -> None:
    service = CallingService()
    async with anthropic_client(service) as client:
        await client.messages.create(**ASKED, thinking={"type": "disabled"})
        assert service.prompt.endswith("</think>\n\n")
        await client.messages.create(**ASKED, thinking={"type": "enabled", "budget_tokens": 1024})
        assert service.prompt.endswith("assistant:")


@pytest.mark.parametrize("effort", ["low", "max"])
async def test_an_effort_turns_thinking_on_where_the_template_knows_that(effort: str) -> None:
    service = CallingService()
    async with anthropic_client(service) as client:
        await client.messages.create(**ASKED, output_config={"effort": effort}, thinking={"type": "adaptive"})
        assert service.prompt.endswith("assistant:")
        await client.messages.create(**ASKED, output_config={"effort": effort}, thinking={"type": "disabled"})
        assert service.prompt.endswith("</think>\n\n")


async def test_the_answer_goes_on_with_an_assistants_last_text() -> None:
    service = CallingService()
    async with anthropic_client(service) as client:
        begun = {"role": "assistant", "content": "It will"}
        await client.messages.create(**{**ASKED, "tools": [], "messages": [USER, begun]})
    assert service.prompt.endswith("assistant: It will")
