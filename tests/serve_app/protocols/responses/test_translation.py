"""The conversation of a body of /v1/responses becomes that of a chat request, and errors go the other way."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import InvalidRequest
from serve_app.protocols.responses.requests import ResponsesRequest
from serve_app.protocols.responses.translation import ItemConversation, translated
from serve_app.protocols.translation import Names

USER = {"role": "user", "content": "the weather?"}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "look "}, {"type": "reasoning_text", "text": "it up"}],
}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I ask."}]}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
CALLED = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
ASSISTANT = {"role": "assistant", "content": ""}
ANSWERED = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


def conversation(items: Any, **fields: Any) -> ItemConversation:
    return ItemConversation(ResponsesRequest.model_validate({"model": "org/toy", "input": items, **fields}))


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ("hello", [{"role": "user", "content": "hello"}]),
        ([USER], [USER]),
        ([{**USER, "content": [{"type": "input_text", "text": part} for part in "ab"]}], [{**USER, "content": "ab"}]),
        (
            [USER, THOUGHT, SAID, CALL, RESULT],
            [
                USER,
                {"role": "assistant", "reasoning_content": "look it up", "content": "I ask.", "tool_calls": [CALLED]},
                ANSWERED,
            ],
        ),
        (
            [CALL, CALL, RESULT, CALL],
            [
                {"role": "assistant", "content": "", "tool_calls": [CALLED, CALLED]},
                ANSWERED,
                {"role": "assistant", "content": "", "tool_calls": [CALLED]},
            ],
        ),
        ([SAID, SAID], [{"role": "assistant", "content": "I ask."}] * 2),
        ([{**SAID, "content": [{"type": "refusal", "refusal": "No."}]}], [{"role": "assistant", "content": "No."}]),
        ([{**SAID, "content": []}], [{"role": "assistant", "content": ""}]),
        ([CALL, {**RESULT, "output": []}], [{**ASSISTANT, "tool_calls": [CALLED]}, {**ANSWERED, "content": ""}]),
        (
            [THOUGHT, SAID, THOUGHT],
            [
                {"role": "assistant", "reasoning_content": "look it up", "content": "I ask."},
                {"role": "assistant", "reasoning_content": "look it up", "content": ""},
            ],
        ),
        ([USER, {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "xyz"}], [USER]),
    ],
)
def test_items_become_messages_one_for_each_turn_of_the_assistant(items: Any, messages: list[Any]) -> None:
    assert conversation(items).messages == messages


def test_instructions_come_first() -> None:
    assert conversation("hi", instructions="be brief").messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]


@pytest.mark.parametrize(
    ("chat", "client"),
    [
        ("messages", "input"),
        ("messages[0].content", "instructions"),
        ("messages[1].content[3].text", "input[0].content[3].text"),
        ("messages[2].role", "input[1]"),
        ("messages[2].reasoning_content", "input[1].content"),
        ("messages[2].content", "input[2].content"),
        ("messages[2].tool_calls[0].function.arguments", "input[3].arguments"),
        ("messages[2].tool_calls[0].id", "input[3].call_id"),
        ("messages[3].tool_call_id", "input[4].call_id"),
        ("max_tokens", "max_output_tokens"),
        ("temperature", "temperature"),
    ],
)
def test_what_is_wrong_with_the_chat_request_has_the_clients_name(chat: str, client: str) -> None:
    known = conversation([USER, THOUGHT, SAID, CALL, RESULT], instructions="be brief").names
    names = Names({"messages": "input", "max_tokens": "max_output_tokens", **known})
    field = client.replace("input[1]", "input[1].role") if chat.endswith("role") else client
    assert names.of(chat) == field


def test_the_message_of_an_error_is_in_the_clients_names_too() -> None:
    names = Names({"max_tokens": "max_output_tokens", "messages": "input"})
    with pytest.raises(InvalidRequest) as refusal, names.clients():
        raise InvalidRequest("max_tokens", "5 tokens of prompt and max_tokens of 9 exceed the context", code="too_long")
    assert (refusal.value.field, refusal.value.code) == ("max_output_tokens", "too_long")
    assert str(refusal.value) == "5 tokens of prompt and max_output_tokens of 9 exceed the context"
    with pytest.raises(InvalidRequest, match="'input' has 7 characters in its messages"), names.clients():
        raise InvalidRequest("messages", "'messages' has 7 characters in its messages")


def test_all_else_is_passed_on() -> None:
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": 3, "store": False, "max_output_tokens": 9}
    body = {"model": "org/toy", "input": "hi", "speculation": {"task": "math"}, **fields}
    chat, _ = translated(ResponsesRequest.model_validate(body))
    assert chat.max_tokens == 9
    assert chat.speculation.task == "math"
    assert {name: getattr(chat, name) for name in fields if name != "max_output_tokens"} == {
        name: value for name, value in fields.items() if name != "max_output_tokens"
    }
