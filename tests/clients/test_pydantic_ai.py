"""Pydantic AI: agents whose answers are objects, and who call tools until they have one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Service
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from weather import ASK, REPORT, SAY, Weather


def agent(service: Service, **fields: Any) -> Agent[None, Any]:
    provider = OpenAIProvider(base_url=service.v1, api_key="unused")
    settings = {"max_tokens": 200, "seed": 1, "parallel_tool_calls": False}
    return Agent(OpenAIChatModel(service.model, provider=provider), model_settings=settings, **fields)


def test_chat_whole(service: Service) -> None:
    assert agent(service).run_sync(SAY).output


async def streamed(asked: Agent[None, Any]) -> Any:
    async with asked.run_stream(SAY) as run:
        return "".join([text async for text in run.stream_text(delta=True)])


def test_chat_streamed(service: Service) -> None:
    assert asyncio.run(streamed(agent(service)))


@pytest.mark.parametrize("kind", [ToolOutput, NativeOutput])
def test_a_parsed_answer(service: Service, kind: Any) -> None:
    assert isinstance(agent(service, output_type=kind(Weather)).run_sync(ASK).output, Weather)


def test_a_parsed_answer_over_responses(service: Service) -> None:
    provider = OpenAIProvider(base_url=service.v1, api_key="unused")
    asked = Agent(OpenAIResponsesModel(service.model, provider=provider), output_type=NativeOutput(Weather))
    assert isinstance(asked.run_sync(ASK).output, Weather)


def test_an_agent_calls_a_tool_and_answers(scripted: Service) -> None:
    asked = agent(scripted)
    cities = []

    @asked.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return REPORT

    run = asked.run_sync(ASK)
    assert cities == ["Oslo"]
    assert run.output == "It is seven degrees."
    assert "One place, one call." in str(run.all_messages())
