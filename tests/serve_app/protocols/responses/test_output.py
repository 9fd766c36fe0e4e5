"""Reasoning, text and calls become output items; where the answer was cut shows in none of them."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from hypothesis import given
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from core.tools.answer import AnswerDelta, ContentPart, joined
from serve_app.protocols.responses.bodies import ResponseBody
from serve_app.protocols.responses.requests import ResponsesRequest
from serve_app.protocols.responses.translation import translated
from serve_app.protocols.responses.writer import ResponseWriter
from tests.serve_app.deltas import (
    ANSWER,
    ARGUMENTS,
    INTERLEAVED,
    USAGE,
    WRITTEN,
    cuts,
    named_events,
    pieces,
    sender,
    written,
)
from tests.serve_app.scripted import ScriptedService

EVENT = TypeAdapter[Any](ResponseStreamEvent)


def response() -> ResponseWriter:
    body = ResponsesRequest.model_validate({"model": "org/toy", "input": "the answer"})
    return ResponseWriter(body, translated(body)[0], ScriptedService())


def whole(deltas: list[AnswerDelta], finish_reason: str = "stop") -> ResponseBody:
    body = response().whole(pieces([joined(deltas)], finish_reason), USAGE)
    assert isinstance(body, ResponseBody)
    return body


def told(body: bytes) -> list[Any]:
    return named_events(body, EVENT)


def contents(items: list[Any]) -> list[Any]:
    """What items say, without the ids, which are random."""
    return [
        (item.type, item.status, item.name, item.arguments)
        if item.type == "function_call"
        else (item.type, item.status, [part.text for part in item.content])
        for item in items
    ]


def test_an_answer_is_reasoning_then_text_then_calls() -> None:
    assert contents(whole(ANSWER).output) == [
        ("reasoning", "completed", ["Two places, two calls."]),
        ("message", "completed", ["I look it up."]),
        ("function_call", "completed", "weather", ARGUMENTS[0]),
        ("function_call", "completed", "forecast", ARGUMENTS[1]),
    ]


@given(cuts(WRITTEN))
def test_where_the_answer_is_cut_shows_in_no_item(deltas: list[AnswerDelta]) -> None:
    *_, last = told(written(response(), deltas))
    assert last.type == "response.completed"
    assert contents(last.response.output) == contents(whole(ANSWER).output)


@given(cuts(INTERLEAVED))
def test_items_are_in_the_order_of_the_answer_however_it_was_cut(deltas: list[AnswerDelta]) -> None:
    *_, last = told(written(response(), deltas))
    assert contents(last.response.output) == contents(whole(deltas).output)
    assert contents(last.response.output) == [
        ("reasoning", "completed", ["Hm."]),
        ("message", "completed", ["First."]),
        ("function_call", "completed", "weather", ARGUMENTS[0]),
        ("message", "completed", ["Then <b>.\n"]),
        ("function_call", "completed", "forecast", ARGUMENTS[1]),
        ("function_call", "completed", "weather", ARGUMENTS[0]),
        ("message", "completed", [" <tool_call>Done."]),
    ]


def test_the_events_are_those_of_openai_in_its_order() -> None:
    events = told(written(response(), ANSWER))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = ["output_item.added", "content_part.added", *["{}.delta"] * 2]
    text += ["{}.done", "content_part.done", "output_item.done"]
    calls = ["output_item.added", *["function_call_arguments.delta"] * 2]
    calls += ["function_call_arguments.done", "output_item.done"]
    expected = ["created", "in_progress"]
    expected += [name.format("reasoning_text") for name in text] + [name.format("output_text") for name in text]
    expected += [*calls, *calls[:1], *calls[2:], "completed"]
    assert [event.type for event in events] == [f"response.{name}" for name in expected]


def test_events_about_an_item_have_its_index_and_id() -> None:
    events = told(written(response(), ANSWER))
    ids = {event.output_index: event.item.id for event in events if event.type == "response.output_item.added"}
    placed = [event for event in events if hasattr(event, "item_id")]
    assert ids.keys() == {0, 1, 2, 3}
    assert {(event.output_index, event.item_id) for event in placed} == set(ids.items())


async def test_the_official_client_puts_the_same_answer_together() -> None:
    client = openai.AsyncOpenAI(api_key="none", http_client=sender(written(response(), ANSWER)))
    async with client, client.responses.stream(model="org/toy", input="the answer") as stream:
        snapshots = [event.snapshot async for event in stream if event.type.endswith("arguments.delta")]
        final = await stream.get_final_response()
    assert snapshots == ['{"city": ', *ARGUMENTS]
    assert contents(final.output) == contents(whole(ANSWER).output)
    assert final.output_text == "I look it up."


@pytest.mark.parametrize("last", [ANSWER[0], AnswerDelta((ContentPart("I"),)), ANSWER[2]])
def test_an_answer_cut_by_its_limit_is_incomplete_and_so_is_its_last_item(last: AnswerDelta) -> None:
    *_, end = told(written(response(), [last], "length"))
    assert end.type == "response.incomplete"
    assert end.response.incomplete_details.reason == "max_output_tokens"
    *before, cut = end.response.output
    assert cut.status == "incomplete"
    assert {item.status for item in before} <= {"completed"}


def test_an_answer_that_says_nothing_has_an_empty_message() -> None:
    assert contents(whole([AnswerDelta()]).output) == [("message", "completed", [""])]
    *_, last = told(written(response(), [AnswerDelta()]))
    assert contents(last.response.output) == [("message", "completed", [""])]


def test_tokens_of_reasoning_are_counted_beside_all_tokens() -> None:
    usage = whole(ANSWER).usage
    assert usage is not None
    assert usage.output_tokens_details.reasoning_tokens > 0
    assert whole([AnswerDelta((ContentPart("I"),))]).usage.output_tokens_details.reasoning_tokens == 0  # type: ignore[union-attr]
