"""Anthropic's client."""

from __future__ import annotations

import pytest
from anthropic import Anthropic
from conftest import Service
from weather import MESSAGES, SAY, Place


@pytest.fixture
def client(service: Service) -> Anthropic:
    return Anthropic(base_url=service.url, api_key="unused", max_retries=0)


def test_messages_whole_and_streamed_and_their_tokens_counted(service: Service, client: Anthropic) -> None:
    fields = {"model": service.model, "messages": [{"role": "user", "content": SAY}]}
    limits = {"max_tokens": 30, "extra_body": {"temperature": 0}}
    whole = client.messages.create(**fields, **limits)
    with client.messages.stream(**fields, **limits) as stream:
        assert stream.get_final_text() == whole.content[0].text
    assert client.messages.count_tokens(**fields).input_tokens == whole.usage.input_tokens


def test_a_required_tool_is_called(service: Service, client: Anthropic) -> None:
    tool = {"name": "weather", "description": "The weather of a city.", "input_schema": Place.model_json_schema()}
    choice = {"type": "any", "disable_parallel_tool_use": True}
    answer = client.messages.create(
        model=service.model, messages=MESSAGES, max_tokens=100, tools=[tool], tool_choice=choice
    )
    assert answer.stop_reason == "tool_use"
    assert [Place.model_validate(block.input) for block in answer.content]


def test_a_parsed_answer(service: Service, client: Anthropic) -> None:
    # Not of `Weather`: this client does not send the bounds of its number, yet holds the answer to them.
    answer = client.messages.parse(model=service.model, messages=MESSAGES, max_tokens=100, output_format=Place)
    assert isinstance(answer.parsed_output, Place)
