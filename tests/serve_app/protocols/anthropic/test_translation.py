"""The conversation of a body of /v1/messages becomes that of a chat request, and errors go the other way."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.protocols.anthropic.requests import MessagesRequest
from serve_app.protocols.anthropic.translation import BlockConversation, translated
from serve_app.protocols.translation import Names

USER = {"role": "user", "content": "the weather?"}
THOUGHT = {"type": "thinking", "thinking": "look it up", "signature": ""}
SAID = {"type": "text", "text": "I ask."}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Tromsø"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
CALLED = {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Tromsø"}'}}
ANSWERED = {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"}
TURN = {"role": "assistant", "content": [THOUGHT, SAID, USE]}


def body(*messages: Any, **fields: Any) -> MessagesRequest:
    return MessagesRequest.model_validate(
        {"model": "org/toy", "max_tokens": 9, "messages": list(messages) or [USER], **fields}
    )


@pytest.mark.parametrize(
    ("messages", "chat"),
    [
        ([USER], [USER]),
        ([{"role": "user", "content": [SAID, SAID]}], [{"role": "user", "content": "I ask.I ask."}]),
        (
            [USER, TURN, {"role": "user", "content": [RESULT, SAID]}],
            [
                USER,
                {"role": "assistant", "content": "I ask.", "reasoning_content": "look it up", "tool_calls": [CALLED]},
                ANSWERED,
                {"role": "user", "content": "I ask."},
            ],
        ),
        (
            [USER, {"role": "assistant", "content": [USE, USE]}, {"role": "user", "content": [RESULT, RESULT]}],
            [USER, {"role": "assistant", "content": "", "tool_calls": [CALLED, CALLED]}, ANSWERED, ANSWERED],
        ),
        (
            [{"role": "user", "content": [{**RESULT, "content": [SAID, SAID], "is_error": True}]}],
            [{**ANSWERED, "content": "I ask.I ask."}],
        ),
        ([USER, {"role": "system", "content": "be brief"}], [USER, {"role": "system", "content": "be brief"}]),
        *[
            ([{"role": "user", "content": [{**RESULT, "content": content}]}], [{**ANSWERED, "content": ""}])
            for content in ([], "", None)
        ],
        ([USER, {"role": "assistant", "content": []}, USER], [USER, {"role": "assistant", "content": ""}, USER]),
        (
            [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, SAID]}],
            [{"role": "assistant", "content": "I ask."}],
        ),
    ],
)
def test_blocks_become_messages_and_results_of_tools_messages_of_their_own(messages: Any, chat: Any) -> None:
    assert BlockConversation(body(*messages)).messages == chat


@pytest.mark.parametrize("system", ["be brief", [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]])
def test_the_system_message_comes_first(system: Any) -> None:
    assert BlockConversation(body(system=system)).messages == [{"role": "system", "content": "be brief"}, USER]


@pytest.mark.parametrize("system", [None, "", [], [{"type": "text", "text": ""}]])
def test_a_system_message_that_says_nothing_is_none(system: Any) -> None:
    assert BlockConversation(body(system=system)).messages == [USER]


@pytest.mark.parametrize(
    ("chat", "client"),
    [
        ("messages[0].content", "system"),
        ("messages[1].content", "messages[0].content"),
        ("messages[2].tool_calls[0].function.name", "messages[1].content[2].name"),
        ("messages[2].tool_calls[0].function.arguments", "messages[1].content[2].input"),
        ("messages[2].reasoning_content", "messages[1].content[0].thinking"),
        ("messages[3].tool_call_id", "messages[2].content[0].tool_use_id"),
        ("messages[4]", "messages[2]"),
    ],
)
def test_what_is_wrong_with_the_chat_request_has_the_clients_name(chat: str, client: str) -> None:
    conversation = BlockConversation(body(USER, TURN, {"role": "user", "content": [RESULT, SAID]}, system="be brief"))
    assert Names(conversation.names).of(chat) == client


def test_an_assistants_last_text_is_the_beginning_of_the_answer() -> None:
    assert translated(body(USER, {"role": "assistant", "content": "It"}))[0].continue_final_message
    assert not translated(body(USER))[0].continue_final_message


@pytest.mark.parametrize(("type_", "thinks"), [("disabled", False), ("enabled", True), ("adaptive", True)])
def test_the_chat_template_is_told_whether_to_think(type_: str, thinks: bool) -> None:
    thinking = {"type": type_, "budget_tokens": 1024} if type_ == "enabled" else {"type": type_}
    assert translated(body(thinking=thinking))[0].chat_template_kwargs == {"enable_thinking": thinks}
    assert translated(body())[0].chat_template_kwargs == {}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"output_config": {"effort": "high"}}, {"reasoning_effort": "high", "enable_thinking": True}),
        ({"output_config": {"effort": "none"}}, {"reasoning_effort": "none", "enable_thinking": False}),
        (
            {"output_config": {"effort": "max"}, "thinking": {"type": "disabled"}},
            {"reasoning_effort": "max", "enable_thinking": False},
        ),
    ],
)
def test_an_effort_is_told_to_the_template_which_need_not_know_it(fields: Any, told: dict[str, Any]) -> None:
    chat, _ = translated(body(**fields))
    assert (chat.chat_template_kwargs, chat.reasoning_effort) == (told, None)


def test_all_else_is_passed_on() -> None:
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": 3, "store": False}
    chat, _ = translated(body(stop_sequences=["END", "stop"], speculation={"task": "math"}, **fields))
    assert (chat.max_tokens, chat.stops, chat.speculation.task) == (9, ("END", "stop"), "math")
    assert {name: getattr(chat, name) for name in fields} == fields
