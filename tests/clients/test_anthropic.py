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


def test_what_an_agent_sends_whatever_the_model(client: Anthropic) -> None:
    """As Claude Code does: a fixed name, a constant limit, parts with marks for a cache, and fields of betas."""
    tool = {"name": "weather", "description": "The weather of a city.", "input_schema": Place.model_json_schema()}
    cached = {"cache_control": {"type": "ephemeral"}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [], "is_error": False, **cached}
    answer = client.beta.messages.create(
        model="claude-of-an-agent",
        max_tokens=32_000,
        system=[{"type": "text", "text": "You answer in calls.", **cached}],
        messages=[
            *MESSAGES,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result, {"type": "text", "text": "And in Rome?", **cached}]},
        ],
        tools=[tool],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        thinking={"type": "adaptive"},
        output_config={"effort": "high"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        betas=["context-management-2025-06-27"],
        metadata={"user_id": "user_1"},
        timeout=600,
    )
    assert (answer.model, answer.stop_reason) == ("claude-of-an-agent", "tool_use")
    assert [Place.model_validate(block.input) for block in answer.content]


def test_a_parsed_answer(service: Service, client: Anthropic) -> None:
    # Not of `Weather`: this client does not send the bounds of its number, yet holds the answer to them.
    answer = client.messages.parse(model=service.model, messages=MESSAGES, max_tokens=100, output_format=Place)
    assert isinstance(answer.parsed_output, Place)
