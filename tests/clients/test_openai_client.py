"""OpenAI's own client: chat and responses."""

from __future__ import annotations

import pytest
from conftest import Service
from openai import OpenAI
from weather import ASK, MESSAGES, SAY, TOOL, Place, Weather, is_object


@pytest.fixture
def client(service: Service) -> OpenAI:
    return OpenAI(base_url=service.v1, api_key="unused", max_retries=0)


def test_chat_whole_and_streamed(service: Service, client: OpenAI) -> None:
    fields = {"model": service.model, "messages": [{"role": "user", "content": SAY}], "max_tokens": 30, "seed": 1}
    whole = client.chat.completions.create(**fields).choices[0].message.content
    with client.chat.completions.stream(**fields) as stream:
        streamed = stream.get_final_completion().choices[0].message.content
    assert whole
    assert streamed == whole


def test_a_required_tool_is_called_whole_and_streamed(service: Service, client: OpenAI) -> None:
    fields = {"model": service.model, "messages": MESSAGES, "tools": [TOOL], "seed": 1}
    fields |= {"tool_choice": "required", "parallel_tool_calls": False}
    [call] = client.chat.completions.create(**fields).choices[0].message.tool_calls
    with client.chat.completions.stream(**fields) as stream:
        [streamed] = stream.get_final_completion().choices[0].message.tool_calls
    for made in (call, streamed):
        assert made.function.name == "weather"
        assert Place.model_validate_json(made.function.arguments)
    assert streamed.function.arguments == call.function.arguments


def test_a_json_object(service: Service, client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=service.model, messages=MESSAGES, response_format={"type": "json_object"}, temperature=0, max_tokens=200
    )
    assert answer.choices[0].finish_reason == "stop"
    assert is_object(answer.choices[0].message.content)


def test_a_parsed_answer_whole_and_streamed(service: Service, client: OpenAI) -> None:
    fields = {"model": service.model, "messages": MESSAGES, "response_format": Weather, "seed": 1}
    parsed = client.chat.completions.parse(**fields).choices[0].message.parsed
    with client.chat.completions.stream(**fields) as stream:
        streamed = stream.get_final_completion().choices[0].message.parsed
    assert isinstance(parsed, Weather)
    assert streamed == parsed


def test_responses_in_text_parsed_and_with_a_tool(service: Service, client: OpenAI) -> None:
    model = service.model
    assert client.responses.create(model=model, input=SAY, max_output_tokens=30).output_text
    assert isinstance(client.responses.parse(model=model, input=ASK, text_format=Weather).output_parsed, Weather)
    with client.responses.stream(model=model, input=ASK, text_format=Weather) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Weather)
    tool = {"type": "function", **TOOL["function"], "strict": True}
    [call] = client.responses.create(
        model=model, input=ASK, tools=[tool], tool_choice="required", parallel_tool_calls=False
    ).output
    assert Place.model_validate_json(call.arguments)


def test_of_two_tools_in_the_prompt_the_allowed_one_is_called(service: Service, client: OpenAI) -> None:
    clock = {"type": "function", "function": {"name": "clock", "description": "The time of day."}}
    named = {"type": "function", "function": {"name": "clock"}}
    fields = {"model": service.model, "messages": MESSAGES, "tools": [TOOL, clock], "parallel_tool_calls": False}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    [call] = client.chat.completions.create(**fields, tool_choice=choice).choices[0].message.tool_calls
    assert call.function.name == "clock"
    tools = [{"type": "function", **tool["function"], "strict": True} for tool in (TOOL, clock)]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
    response = client.responses.create(
        model=service.model, input=ASK, tools=tools, tool_choice=choice, parallel_tool_calls=False
    )
    assert [item.name for item in response.output] == ["weather"]
    assert response.tool_choice.tools == choice["tools"]
