"""LangChain."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Service
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from weather import ASK, SAY, Place, Weather, is_object


def chat(service: Service, **fields: Any) -> ChatOpenAI:
    given = {"seed": 1, "max_tokens": 200} | fields
    return ChatOpenAI(base_url=service.v1, api_key="unused", model=service.model, max_retries=0, **given)


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: 7 degrees"


def test_chat_whole_and_streamed(service: Service) -> None:
    model = chat(service, max_tokens=30)
    whole = model.invoke(SAY).content
    assert whole
    assert "".join(chunk.content for chunk in model.stream(SAY)) == whole


def test_a_required_tool_is_called_whole_and_streamed(service: Service) -> None:
    model = chat(service).bind_tools([Place], tool_choice="any", parallel_tool_calls=False)
    chunks = list(model.stream(ASK))
    streamed = chunks[0]
    for chunk in chunks[1:]:
        streamed += chunk
    for answer in (model.invoke(ASK), streamed):
        [call] = answer.tool_calls
        assert call["name"] == "Place"
        assert Place.model_validate(call["args"])


def test_a_json_object(service: Service) -> None:
    model = chat(service, temperature=0).bind(response_format={"type": "json_object"})
    assert is_object(model.invoke(ASK).content)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_a_parsed_answer(service: Service, method: str) -> None:
    assert isinstance(chat(service).with_structured_output(Weather, method=method).invoke(ASK), Weather)


def test_a_parsed_answer_over_responses(service: Service) -> None:
    model = chat(service, seed=None, use_responses_api=True)
    assert isinstance(model.with_structured_output(Weather, method="json_schema").invoke(ASK), Weather)


def test_a_call_goes_back_with_its_result(scripted: Service) -> None:
    model = chat(scripted).bind_tools([weather])
    called = model.invoke(ASK)
    [call] = called.tool_calls
    answer = model.invoke(
        [HumanMessage(ASK), called, ToolMessage(weather.invoke(call).content, tool_call_id=call["id"])]
    )
    assert answer.content == "It is seven degrees."
