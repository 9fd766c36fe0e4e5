"""Thinking, text and calls become content blocks; where the answer was cut shows in none of them."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from pydantic import TypeAdapter

from core.tools.answer import AnswerDelta, CallPart, joined
from serve_app.protocols.anthropic.bodies import MessageBody
from serve_app.protocols.anthropic.writer import MessageWriter
from tests.serve_app.deltas import (
    ANSWER,
    ARGUMENTS,
    INTERLEAVED,
    USAGE,
    WRITTEN,
    cuts,
    named_events,
    pieces,
    read,
    sender,
    written,
)
from tests.serve_app.scripted import ScriptedService

EVENT = TypeAdapter[Any](RawMessageStreamEvent)
BLOCKS = [
    {"type": "thinking", "thinking": "Two places, two calls.", "signature": ""},
    {"type": "text", "text": "I look it up."},
    {"type": "tool_use", "name": "weather", "input": json.loads(ARGUMENTS[0])},
    {"type": "tool_use", "name": "forecast", "input": json.loads(ARGUMENTS[1])},
]


def message() -> MessageWriter:
    return MessageWriter(ScriptedService(), "org/toy", prompt_tokens=5)


def whole(deltas: list[AnswerDelta], finish_reason: str = "stop") -> MessageBody:
    body = message().whole(pieces([joined(deltas)], finish_reason), USAGE)
    assert isinstance(body, MessageBody)
    return body


def told(body: bytes) -> list[Any]:
    return named_events(body, EVENT)


def shown(blocks: list[Any]) -> list[dict[str, Any]]:
    """What blocks say, without the ids, which are random."""
    return [block.model_dump(exclude={"id"}, exclude_none=True) for block in blocks]


async def put_together(body: bytes) -> Any:
    """The message that Anthropic's client makes of a stream."""
    client = anthropic.AsyncAnthropic(api_key="none", base_url="http://service", http_client=sender(body))
    async with client, client.messages.stream(model="org/toy", max_tokens=9, messages=[]) as stream:
        return await stream.get_final_message()


def test_an_answer_is_thinking_then_text_then_calls() -> None:
    answer = whole(ANSWER)
    assert shown(answer.content) == BLOCKS
    assert answer.stop_reason == "tool_use"
    assert anthropic.types.Message.model_validate(answer.model_dump()).role == "assistant"


@given(cuts(WRITTEN))
def test_where_the_answer_is_cut_shows_in_no_block(deltas: list[AnswerDelta]) -> None:
    start, *events, end, stop = told(written(message(), deltas))
    assert (start.type, end.type, stop.type) == ("message_start", "message_delta", "message_stop")
    said: dict[int, str] = {}
    for event in events:
        if event.type == "content_block_delta":
            said[event.index] = said.get(event.index, "") + next(
                value for name, value in event.delta if name not in {"type", "caller"}
            )
    assert [said[number] for number in range(4)] == ["Two places, two calls.", "I look it up.", *ARGUMENTS]
    assert end.delta.stop_reason == "tool_use"


def test_blocks_come_one_after_another() -> None:
    steps = [
        (event.index, event.type.removeprefix("content_block_"))
        for event in told(written(message(), ANSWER))
        if event.type.startswith("content_block")
    ]
    number_of_deltas = [3, 2, 2, 1]  # the thinking has its signature beside
    assert steps == [
        (index, step)
        for index, deltas in enumerate(number_of_deltas)
        for step in ("start", *["delta"] * deltas, "stop")
    ]


async def test_the_official_client_puts_the_same_message_together() -> None:
    final = await put_together(written(message(), ANSWER))
    assert shown(final.content) == BLOCKS
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("tool_use", 5, 9)
    assert final.usage.output_tokens_details.thinking_tokens > 0


IN_ORDER = [
    {"type": "thinking", "thinking": "Hm.", "signature": ""},
    {"type": "text", "text": "First."},
    {"type": "tool_use", "name": "weather", "input": json.loads(ARGUMENTS[0])},
    {"type": "text", "text": "Then <b>.\n"},
    {"type": "tool_use", "name": "forecast", "input": json.loads(ARGUMENTS[1])},
    {"type": "tool_use", "name": "weather", "input": json.loads(ARGUMENTS[0])},
    {"type": "text", "text": " <tool_call>Done."},
]


def begun_and_said(body: bytes) -> list[list[str]]:
    """Of each block of a stream, its type or the tool's name, and its text."""
    blocks: list[list[str]] = []
    for event in told(body):
        if event.type == "content_block_start":
            blocks.append([getattr(event.content_block, "name", event.content_block.type), ""])
        elif event.type == "content_block_delta":
            fields = event.delta.model_dump(exclude={"type"})
            blocks[event.index][1] += fields[min(fields)]
    return blocks


@given(cuts(INTERLEAVED))
def test_blocks_are_in_the_order_of_the_answer_however_it_was_cut(deltas: list[AnswerDelta]) -> None:
    assert begun_and_said(written(message(), deltas)) == begun_and_said(written(message(), [joined(deltas)]))
    assert shown(whole(deltas).content) == IN_ORDER


async def test_a_stream_has_the_blocks_of_the_whole_answer() -> None:
    final = await put_together(written(message(), read(INTERLEAVED)))
    assert shown(final.content) == shown(whole(read(INTERLEAVED)).content) == IN_ORDER


@pytest.mark.parametrize("arguments", ['{"city": "Os', '{"city": "Oslo", ', "", '{"city"'])
async def test_a_call_cut_by_the_limit_is_the_same_object_whole_and_streamed(arguments: str) -> None:
    deltas = [AnswerDelta((CallPart(0, "weather", arguments),))]
    final = await put_together(written(message(), deltas, "length"))
    answer = whole(deltas, "length")
    assert shown(final.content) == shown(answer.content)
    assert final.stop_reason == answer.stop_reason == "max_tokens"


def test_an_answer_that_says_nothing_has_no_block() -> None:
    assert whole([AnswerDelta()]).content == []
    assert [event.type for event in told(written(message(), [AnswerDelta()]))] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
