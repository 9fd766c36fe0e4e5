"""Prompts come in from a file whole, in the forms that people have, or the line and field at fault are named."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import ConfigError
from core.text.prompt_files import read_prompts
from core.text.prompts import Call, Message, Prompt
from serve_app.http.schema.messages import for_template
from serve_app.http.schema.requests import ChatRequest
from tests.examples import examples

HUMAN, ANSWER = {"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}
WHY = (Message("user", "Why?"),)
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str | bytes], list[Prompt]]:
    """The prompts of a file of this content."""

    def of(content: str | bytes) -> list[Prompt]:
        file = tmp_path / "prompts.jsonl"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_prompts(file)

    return of


Read = Callable[[str | bytes], list[Prompt]]


def test_texts_and_conversations_are_read(read: Read) -> None:
    lines = (
        '{"prompt": "What is 2 + 2?", "task": "math"}\n'
        "\n"
        '{"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "你好"}]}'
    )
    assert read(lines) == [
        Prompt(prompt="What is 2 + 2?", task="math"),
        Prompt(messages=(Message("system", ""), Message("user", "你好"))),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_lines_end_as_on_any_system_and_a_mark_may_stand_first(read: Read, end: str, encoding: str) -> None:
    prompts = read(end.join(['{"prompt": "\ufeffWhat?\u2028\x85"}', "", '{"prompt": "And?"}', ""]).encode(encoding))
    assert prompts == [Prompt(prompt="\ufeffWhat?\u2028\x85"), Prompt(prompt="And?")]
    assert [prompt.origin.rpartition(", ")[2] for prompt in prompts] == ["line 1", "line 3"]


FORMS: dict[str, tuple[dict[str, Any], Prompt]] = {
    "sharegpt": (
        {"conversations": [{"from": "system", "value": "Be brief."}, HUMAN, ANSWER, HUMAN, ANSWER]},
        Prompt(messages=(Message("system", "Be brief."), *WHY, Message("assistant", "So."), *WHY)),
    ),
    "sharegpt with other names": (
        {
            "system": "Be brief.",
            "conversations": [{"from": "user", "value": "Why?"}, {"from": "assistant", "value": "So."}],
        },
        Prompt(messages=(Message("system", "Be brief."), *WHY)),
    ),
    "sharegpt with a result": (
        {"conversations": [HUMAN, ANSWER, {"from": "tool", "value": "5"}]},
        Prompt(messages=(*WHY, Message("assistant", "So."), Message("tool", "5", tool_call_id="call_1"))),
    ),
    "conversations with roles": ({"conversations": [{"role": "user", "content": "Why?"}]}, Prompt(messages=WHY)),
    "alpaca": (
        {"instruction": "Add.", "input": "1 2", "output": "3"},
        Prompt(messages=(Message("user", "Add.\n\n1 2"),)),
    ),
    "alpaca without input": ({"instruction": "Why?", "input": "", "output": "So."}, Prompt(messages=WHY)),
    "alpaca with null": ({"instruction": "Why?", "input": None}, Prompt(messages=WHY)),
    "nulls": ({"prompt": None, "messages": [{"role": "user", "content": "Why?"}], "task": None}, Prompt(messages=WHY)),
    "messages before a prompt": (
        {"prompt": "Why", "messages": [{"role": "user", "content": "Why?"}]},
        Prompt(messages=WHY),
    ),
    "parts": (
        {
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Wh"}, {"type": "text", "text": "y?"}]},
            ]
        },
        Prompt(messages=(Message("system", "Be brief."), *WHY)),
    ),
    "answered": (
        {"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So.", "weight": 1}]},
        Prompt(messages=WHY),
    ),
    "tools": (
        {
            "tools": [{"type": "function", "function": {"name": "add", "description": "Adds."}}],
            "messages": [
                {"role": "user", "content": "Why?"},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "5"}]},
            ],
        },
        Prompt(
            messages=(*WHY, Message("assistant", "", (Call("c", "add", '{"a": 1}'),)), Message("tool", "5", (), "c")),
            tools=(
                json.dumps(
                    {
                        "type": "function",
                        "function": {
                            "name": "add",
                            "description": "Adds.",
                            "parameters": {"type": "object", "properties": {}},
                        },
                    }
                ),
            ),
        ),
    ),
    "calls without ids": (
        {
            "messages": [
                {"role": "user", "content": "Why?"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {"function": {"name": "add", "arguments": {"a": 1}}},
                        {"function": {"name": "sub", "arguments": ""}},
                    ],
                },
                {"role": "tool", "name": "add", "content": "5"},
                {"role": "tool", "name": "sub", "content": "6"},
            ]
        },
        Prompt(
            messages=(
                *WHY,
                Message("assistant", "", (Call("call_1", "add", '{"a": 1}'), Call("call_2", "sub", "{}"))),
                Message("tool", "5", (), "call_1"),
                Message("tool", "6", (), "call_2"),
            )
        ),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_that_people_have_are_read_as_lines_and_as_a_list(form: str, read: Read) -> None:
    line, prompt = FORMS[form]
    assert read(json.dumps(line)) == [prompt]
    assert read(json.dumps([line, line], indent=1)) == [prompt, prompt]


@pytest.mark.parametrize("form", FORMS)
def test_the_template_gets_what_the_service_gives_it_for_the_request_that_is_sent(form: str) -> None:
    _, prompt = FORMS[form]
    asked = ChatRequest.model_validate({"model": "any", **prompt.chat_fields})
    assert for_template(asked.messages) == (prompt.template_messages or prompt.chat_fields["messages"])
    assert list(asked.rendering.tools) == prompt.tool_objects


def test_what_no_prompt_is_made_from_is_named_once(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[dict[str, Any]] = [
        {"prompt": "Why?", "id": 1, "source": "here"},
        {"prompt": "Why?", "id": 2, "score": float("nan"), "half \ud83d": ["\ud83d"], "\x1b[31m": 0},
        {"instruction": "Why?", "output": "So."},
        {"conversations": [HUMAN, {**ANSWER, "weight": 1}]},
    ]
    assert len(read("\n".join(map(json.dumps, lines)))) == len(lines)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(
        "prompts.jsonl: not used: the fields id, source, score, half \\ud83d, \\x1b[31m, output, "
        "conversations[].weight; the answers at the end of 1 conversations, as the target makes its own"
    )
    caplog.clear()
    read(json.dumps({"prompt": "Why?"} | {f"n{number}": number for number in range(50)}))
    assert caplog.text.rstrip().endswith("n18, n19 and 30 more")
    caplog.clear()
    read('{"prompt": "Why?", "task": "maths"}')
    assert caplog.records == []


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\t\r\n", b"[]", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_prompts_is_told_with_what_a_line_is(read: Read, content: bytes) -> None:
    with pytest.raises(
        ConfigError, match=r'prompts\.jsonl has no prompts: write lines of \{"prompt": "\.\.\."\}, \{"m'
    ):
        read(content)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b'{"prompt": 4}', "`prompt` is 4; write a text"),
        (b'{"prompt": ""}', "`prompt` is empty; write a text"),
        (b'{"prompt": "a", "task": 3}', "`task` is 3; write a text"),
        (b'{"promt": "What"}', r"no prompt, but 'promt'; write \{\"prompt\""),
        (b"{}", "no prompt, but no field; write"),
        (b'{"messages": []}', "`messages` is empty"),
        (b'{"messages": "What"}', '`messages` is "What"; write a list'),
        (b'{"messages": ["What"]}', r'`messages\[0\]` is "What"; write an object'),
        (b'{"messages": [{"role": "user"}]}', r"`messages\[0\].content` is missing or null; write a text or a list"),
        (b'{"messages": [{"content": "a"}]}', r"`messages\[0\].role` is missing or null; write one of assistant, dev"),
        (b'{"messages": [{"role": "user", "content": [1]}]}', r"`messages\[0\].content\[0\]` is 1; write an object"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', 'is "image_url"; only text is supp'),
        (b'{"messages": [{"role": "assistant", "content": "a"}]}', "`messages` has only answers"),
        (
            b'{"messages": [{"role": "assistant", "tool_calls": [{}]}]}',
            r"`messages\[0\].tool_calls\[0\].function` is",
        ),
        (b'{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}', r"`tools\[0\].function` is missing"),
        (
            b'{"conversations": [{"from": "bing", "value": "a"}]}',
            r"`conversations\[0\].from` is \"bing\"; write one of",
        ),
        (b'{"conversations": [{"from": "human", "value": null}]}', r"`conversations\[0\].value` is missing or null"),
        (b'{"instruction": "a", "input": 3}', "`input` is 3; write a text"),
        (b'{"prompt": "What"', "no JSON: Expecting ',' delimiter"),
        (b'["What"]', "a list is no prompt"),
        (b'{"prompt": "\xff"}', "no UTF-8 \\(byte 0xff\\)"),
        (b'{"prompt": "a\\ud83d"}', r"`prompt` has a lone surrogate, \\ud83d"),
        (b'{"instruction": "a", "input": "\\udc00"}', r"`input` has a lone surrogate, \\udc00"),
        (b'{"prompt": "a\xed\xa0\xbd"}', "a lone surrogate"),
        (b'\xef\xbb\xbf{"prompt": "a"}', "a byte order mark within the file"),
        (b'{"prompt": "a"} \xef\xbb\xbf', "a byte order mark within the file"),
        ('{"prompt": "a"}'.encode("utf-16"), "UTF-16"),
        ('{"prompt": "a"}'.encode("utf-16-be"), "UTF-16"),
        (b'{"prompt": "a", "deep": ' + b"[" * 5000 + b"]" * 5000 + b"}", "too deep within each other"),
        (b'{"prompt": "a", "long": ' + b"9" * 5000 + b"}", "a number of thousands of digits"),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_first_bad_line_and_its_field_are_named(read: Read, line: bytes, named: str, end: bytes) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        read(end.join([b'{"prompt": "What"}', b"", line, b"{}", b""]))
    assert "prompts.jsonl, line 3: " in str(refused.value)


def test_the_first_bad_item_of_a_list_is_named(read: Read) -> None:
    with pytest.raises(ConfigError, match=r"prompts\.jsonl, item 2: `prompt` is 4"):
        read('[{"prompt": "What"},\n{"prompt": 4}]')
    with pytest.raises(ConfigError, match=r"prompts\.jsonl, line 3: a byte order mark within"):
        read('[{"prompt": "What"},\n\n\ufeff{"prompt": 4}]')


def test_a_whole_file_of_utf_16_is_told_as_such(read: Read) -> None:
    with pytest.raises(ConfigError, match=r"prompts\.jsonl, line 1: .*UTF-16.*save the file as UTF-8"):
        read('{"prompt": "Why?"}\r\n{"prompt": "And?"}\r\n'.encode("utf-16"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prompts\.jsonl cannot be read: No such file"):
        read_prompts(tmp_path / "prompts.jsonl")


NAMES = (
    "prompt messages conversations instruction input system tools task role content from value type text tool_calls "
    "tool_call_id id function name arguments parameters"
)
KEYS = st.sampled_from(NAMES.split())
VALUES = st.recursive(
    st.sampled_from([None, True, -1, 0.5, "", "user", "assistant", "tool", "text", "gpt", "\ud83d", "Why?"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=3))
def test_whatever_a_file_holds_becomes_prompts_that_can_be_sent_or_is_refused(
    read: Read, lines: list[dict[str, Any]]
) -> None:
    try:
        prompts = read("\n".join(map(json.dumps, lines)))
    except ConfigError:
        return
    for prompt in prompts:
        json.dumps([prompt.chat_fields, prompt.template_messages], ensure_ascii=False).encode()
        assert prompt.chat_fields["messages"][-1]["role"] != "assistant"
        hash(prompt)
