"""Answers taken apart: what is content, reasoning and a call, and that no cut of the text changes it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.tools.answer import AnswerDelta, CallPart, joined
from core.tools.answer_stream import AnswerStream
from core.tools.format import ToolFormat
from core.tools.formats import FORMATS
from core.tools.markers import MARKS, without_marks
from core.tools.reasoning import Reasoning
from tests.core.tools.parsed import ParsedAnswer, ToolCall, parse, whole_answer

NAMES = ("get", "get_weather", "f")
THINK = Reasoning("<think>", "</think>")
GET, ARGUMENTS = '{"name": "get", "arguments": {"a": 1}}', '{"a": 1}'
CALL = ToolCall("get", ARGUMENTS)
BITS = [
    *('{"name": "get", "arguments": ', '{"name": "get_weather", "parameters": ', '{"arguments": {"a": 2}, "name": "f"'),
    *(
        "{}",
        '{"a": "}{\\"<tool_call>"}',
        '{"é": "\\u00e9\\ud83d',
        '{"a": {"b": [{}]}}',
        '{"name": "nope", "arguments": {}}',
    ),
    *("}", "{", "]", "[", ", ", "; ", '"', "\\", '"name"', ": ", "name", ' "id": "x"', '"type": "function", '),
    *(
        "<tool_call>",
        "</tool_call>",
        "<tool_",
        "</tool_call",
        "<",
        "</",
        "[TOOL_CALLS]",
        "[TOOL",
        "[ARGS]",
        "[CALL_ID]",
    ),
    *("<|python_tag|>", "<|pyt", "```json\n", "```", "`", "<think>", "</think>", "</thi", "<think"),
    *("get", "get_", "get_weather", "f", "nope", " ", "\n", "\n\n", "Hello", "é🙂", "abc123"),
    *MARKS.values(),
]
TEXTS = st.lists(st.sampled_from(BITS) | st.text(max_size=3), max_size=14).map("".join)
STYLES = st.tuples(st.sampled_from([*FORMATS, None]), st.sampled_from([None, THINK]), *[st.booleans()] * 3)
Style = tuple[str | None, Reasoning | None, bool, bool, bool]


def format_named(name: str | None) -> ToolFormat | None:
    return None if name is None else FORMATS[name]


def stream(style: Style) -> AnswerStream:
    tool_format, reasoning, opened, special_tokens, constrained = style
    return AnswerStream(format_named(tool_format), NAMES, reasoning, opened, special_tokens, constrained)


def said(text: str, tool_format: str | None, reasoning: Reasoning | None = None, opened: bool = False) -> Any:
    """Reasoning, content and calls of a whole answer."""
    return tuple(parse(text, AnswerStream(format_named(tool_format), NAMES, reasoning, opened)))


def deltas(text: str, cuts: list[int], style: Style) -> list[AnswerDelta]:
    answer, bounds = stream(style), sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    return [*(answer.push(text[begin:end]) for begin, end in pairwise(bounds)), answer.finish()]


@given(TEXTS, st.lists(st.integers(0, 500), max_size=8), STYLES, st.text("<tool[ca>END ", max_size=4))
def test_no_cut_into_pieces_changes_what_an_answer_says_that_was_cut_off(
    text: str, cuts: list[int], style: Style, following: str
) -> None:
    whole, parts = stream(style), stream(style)
    bounds = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    pieces = [parts.push(text[begin:end]) for begin, end in pairwise(bounds)]
    assert joined([*pieces, parts.cut(following)]) == joined([whole.push(text), whole.cut(following)])
    assert parts.calls == whole.calls


@given(TEXTS, st.lists(st.integers(0, 500), max_size=8), STYLES)
@example(f"<tool_call>{GET}</tool_call>", [12, 20, 35], ("hermes", None, False, False, False))
@example('[TOOL_CALLS]get[ARGS]{"a": 1}', [5, 18, 24], ("mistral", None, False, False, True))
def test_no_cut_changes_what_an_answer_says(text: str, cuts: list[int], style: Style) -> None:
    whole = joined(deltas(text, [], style))
    assert joined(deltas(text, cuts, style)) == whole
    assert joined(deltas(text, list(range(len(text))), style)) == whole


def test_reasoning_content_and_calls_are_in_the_order_of_the_answer() -> None:
    call = f"<tool_call>{GET}</tool_call>"
    whole = joined(deltas(f"<think>Hm.</think>One.{call}Two.{call}{call}", [], ("hermes", THINK, False, False, False)))
    assert [getattr(part, "text", part) for part in whole.parts] == [
        *("Hm.", "One.", CallPart(0, "get", ARGUMENTS), "Two."),
        *(CallPart(index, "get", ARGUMENTS) for index in (1, 2)),
    ]


@given(TEXTS, st.lists(st.integers(0, 500), max_size=8), STYLES)
def test_only_the_first_delta_of_a_call_has_its_name_and_calls_come_in_order(
    text: str, cuts: list[int], style: Style
) -> None:
    begun = 0
    for delta in deltas(text, cuts, style):
        for call in delta.calls:
            assert (call.name is not None) == (call.index == begun)
            begun = max(begun, call.index + 1)
            assert call.index == begun - 1
            assert call.name is None or call.name in NAMES


@given(TEXTS, st.sampled_from([*FORMATS, None]))
def test_without_a_call_every_character_is_content(text: str, tool_format: str | None) -> None:
    answer = parse(text, AnswerStream(format_named(tool_format), ("no such tool",)))
    assert answer == ParsedAnswer(content=without_marks(text, written_out=False))
    shown = parse(text, AnswerStream(format_named(tool_format), ("no such tool",), special_tokens=True))
    assert shown == ParsedAnswer(content=without_marks(text, written_out=True))


@given(TEXTS)
def test_every_character_of_a_text_without_calls_is_reasoning_content_or_a_marker_or_space_around_it(text: str) -> None:
    answer = parse(text, AnswerStream(None, (), THINK))
    kept = without_marks(text, written_out=True)
    for part in (THINK.begin, THINK.end, " ", "\n", "\t", "\r"):
        kept = kept.replace(part, "")
    together = answer.reasoning + answer.content
    for part in (THINK.begin, THINK.end, *MARKS, " ", "\n", "\t", "\r"):
        together, kept = together.replace(part, ""), kept.replace(part, "")
    assert together == kept


@pytest.mark.parametrize(
    ("tool_format", "text", "content", "calls"),
    [
        ("hermes", f"I look.\n<tool_call>\n{GET}\n</tool_call>", "I look.\n", [CALL]),
        ("hermes", f"\n<tool_call>{GET}</tool_call>\n<tool_call>{GET}</tool_call>\n", "", [CALL, CALL]),
        ("hermes", f"<tool_call>[{GET}, {GET}]</tool_call>", "", [CALL, CALL]),
        ("hermes", '<tool_call>{"name": "get", "arguments": {"a": 1}\n</tool_call>Done.', "Done.", [CALL]),
        ("hermes", '<tool_call>{"arguments": {"a": 1}, "id": "x", "name": "get"}</tool_call>', "", [CALL]),
        (
            "hermes",
            '<tool_call>{"type": "a\\"b", "name": "get", "parameters": {"a": 1}, "n": {}}</tool_call>',
            "",
            [CALL],
        ),
        ("llama3", '{"name": "get", "parameters": {"a": 1}}', "", [CALL]),
        ("llama3", f"{GET}; {GET} {GET}", "", [CALL, CALL, CALL]),
        ("llama3", f"Well. <|python_tag|>{GET};{GET}", "Well. ", [CALL, CALL]),
        ("llama3", f"Well. {GET}", f"Well. {GET}", []),
        ("mistral", f"[TOOL_CALLS] [{GET}, {GET}]", "", [CALL, CALL]),
        ("mistral", '[TOOL_CALLS]get[ARGS]{"a": 1}[TOOL_CALLS]get{"a": 1}', "", [CALL, CALL]),
        ("mistral", '[TOOL_CALLS]get[CALL_ID]ab12[ARGS]{"a": 1}', "", [CALL]),
        ("json", f" {GET}\n", "", [CALL]),
        ("json", f"[{GET}, {GET}]", "", [CALL, CALL]),
        ("json", f"```json\n[{GET}]\n```\n", "", [CALL]),
        ("json", f"```\n{GET}\n``` Done.", " Done.", [CALL]),
        ("json", f"So: {GET}", f"So: {GET}", []),
        (None, GET, GET, []),
    ],
)
def test_each_form_of_calls_is_read(tool_format: str, text: str, content: str, calls: list[ToolCall]) -> None:
    assert said(text, tool_format) == ("", content, tuple(calls))


@pytest.mark.parametrize(
    ("tool_format", "text"),
    [
        ("hermes", '<tool_call>{"name": "nope", "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "get_", "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "get", "arguments": "x"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "get", "argu'),
        ("hermes", '<tool_call>{"arguments": {"a": 1}'),
        ("hermes", "<tool_call>\nget(1)\n</tool_call> <tool_"),
        ("llama3", '{"title": "get"}'),
        ("llama3", "<|python_tag|>print(1)"),
        ("mistral", "[TOOL_CALLS] [1, 2]"),
        ("mistral", "[TOOL_CALLS]get[ARGS]"),
        ("mistral", "[TOOL_CALLS]get[CALL_ID]x{}"),
        ("json", '```json\n{"answer": 42}\n```'),
        ("json", f"``{GET}"),
        ("json", "[1, 2]"),
    ],
)
def test_what_begins_like_a_call_and_is_none_is_content(tool_format: str, text: str) -> None:
    assert said(text, tool_format) == ("", text, ())


def test_a_call_behind_a_broken_one_is_read() -> None:
    text = f'<tool_call><tool_call>{{"name": "no<tool_call>{GET}</tool_call>'
    assert said(text, "hermes") == ("", '<tool_call><tool_call>{"name": "no', (CALL,))


def test_what_follows_the_calls_in_a_broken_list_is_content() -> None:
    assert said(f"[TOOL_CALLS] [{GET}, 3]", "mistral") == ("", ", 3]", (CALL,))
    assert said(f"<tool_call>{GET} or not</tool_call>", "hermes") == ("", " or not", (CALL,))


def test_arguments_that_a_grammar_writes_are_released_as_they_come_and_stay_as_they_were_written() -> None:
    answer = AnswerStream(FORMATS["hermes"], NAMES, constrained=True)
    assert answer.push('<tool_call>{"name": "get", "arguments": ') == AnswerDelta()
    assert answer.push("{").calls == (CallPart(0, "get", "{"),)
    assert answer.push(' "é": "\\u00e9}').calls == (CallPart(0, None, ' "é": "\\u00e9}'),)
    assert answer.push('" }').calls == (CallPart(0, None, '" }'),)
    assert answer.push("}\n</tool_call>") == answer.finish() == AnswerDelta()


def test_an_answer_that_is_cut_off_has_the_arguments_so_far() -> None:
    for constrained in (True, False):
        answer = AnswerStream(FORMATS["hermes"], NAMES, constrained=constrained)
        deltas = [answer.push('<tool_call>{"name": "get", "arguments": {"a": "<'), answer.cut()]
        assert whole_answer(deltas) == ParsedAnswer(calls=(ToolCall("get", '{"a": "<'),))
        assert answer.calls == "cut"


def test_content_is_released_at_once_but_for_what_may_be_a_marker() -> None:
    answer = AnswerStream(FORMATS["hermes"], NAMES)
    assert answer.push("Hello, 1 <").content == "Hello, 1 "
    assert answer.push(" 2 <tool").content == "< 2 "
    assert answer.push("s>").content == "<tools>"


@pytest.mark.parametrize(
    ("text", "opened", "parts"),
    [
        ("<think>\nhm\n\nso\n</think>\n\nHello", False, ("hm\n\nso", "Hello", ())),
        ("hm</think>Hello", True, ("hm", "Hello", ())),
        ("hm </think", True, ("hm </think", "", ())),
        ("hm\n", True, ("hm\n", "", ())),
        ("Hello <think>hm</think>", False, ("", "Hello <think>hm</think>", ())),
        (" \n<thin air", False, ("", " \n<thin air", ())),
        (f"<think>no <tool_call>{GET}</tool_call></think>\n<tool_call>{GET}</tool_call>", False, None),
        (f"<tool_call>{GET}</tool_call>", False, ("", "", (CALL,))),
        ("", False, ("", "", ())),
    ],
)
def test_reasoning_comes_first_and_is_no_content(text: str, opened: bool, parts: Any) -> None:
    parts = parts or (f"no <tool_call>{GET}</tool_call>", "", (CALL,))
    assert said(text, "hermes", THINK, opened) == parts


def test_a_special_token_is_a_marker_and_is_left_out_where_it_is_none() -> None:
    mark = MARKS["[TOOL_CALLS]"]
    assert said(f"{mark}[{GET}]", "mistral") == ("", "", (CALL,))
    assert said(f"a{mark}[1]", "mistral") == ("", "a[1]", ())
    assert said(f"{MARKS['<think>']}hm{MARKS['</think>']}Hi", None, THINK) == ("hm", "Hi", ())
