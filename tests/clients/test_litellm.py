"""LiteLLM, which takes the service for one that speaks OpenAI's protocol."""

from __future__ import annotations

from typing import Any

import litellm
from conftest import Service
from weather import MESSAGES, REPORT, SAY, TOOL, Place, Weather, is_object


def asked(service: Service, **fields: Any) -> Any:
    given = {"messages": MESSAGES, "seed": 1, "max_tokens": 200} | fields
    return litellm.completion(model=f"openai/{service.model}", api_base=service.v1, api_key="unused", **given)


def test_chat_whole_and_streamed(service: Service) -> None:
    fields = {"messages": [{"role": "user", "content": SAY}], "max_tokens": 30}
    whole = asked(service, **fields).choices[0].message.content
    chunks = asked(service, **fields, stream=True)
    assert whole
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def test_a_required_tool_is_called_whole_and_streamed(service: Service) -> None:
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    whole = asked(service, **fields)
    built = litellm.stream_chunk_builder(list(asked(service, **fields, stream=True)))
    for answer in (whole, built):
        [call] = answer.choices[0].message.tool_calls
        assert Place.model_validate_json(call.function.arguments)
        assert answer.choices[0].finish_reason == "tool_calls"


def test_a_json_object(service: Service) -> None:
    answer = asked(service, response_format={"type": "json_object"}, temperature=0)
    assert is_object(answer.choices[0].message.content)


def test_a_parsed_answer(service: Service) -> None:
    answer = asked(service, response_format=Weather)
    assert Weather.model_validate_json(answer.choices[0].message.content)


def test_reasoning_and_a_call_go_back_with_its_result(scripted: Service) -> None:
    called = asked(scripted, tools=[TOOL]).choices[0].message
    assert called.reasoning_content == "One place, one call."
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": REPORT}
    answer = asked(scripted, tools=[TOOL], messages=[*MESSAGES, called.model_dump(), result])
    assert answer.choices[0].message.content == "It is seven degrees."
