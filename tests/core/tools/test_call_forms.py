"""Every form in which models write calls: whole, cut into pieces anywhere, and cut off anywhere."""

from __future__ import annotations

import json
import re

import pytest

from core.tools.answer import AnswerDelta
from core.tools.answer_stream import AnswerStream
from core.tools.formats import FORMATS
from core.tools.markers import MARKS
from core.tools.reasoning import Reasoning
from tests.core.tools.call_forms import FORMS, FRAMES, NAMES, Form
from tests.core.tools.parsed import ParsedAnswer, parse, whole_answer

EACH = pytest.mark.parametrize("tool_format", FRAMES)


def forms(tool_format: str) -> list[Form]:
    return [form for form in FORMS if form.tool_format == tool_format]


def stream(form: Form) -> AnswerStream:
    return AnswerStream(FORMATS[form.tool_format], NAMES)


@EACH
def test_the_calls_of_each_form_are_read_and_all_else_is_content(tool_format: str) -> None:
    for form in forms(tool_format):
        answer = stream(form)
        assert parse(form.text, answer) == ParsedAnswer("", form.content, form.calls), form
        assert answer.calls == ("whole" if form.calls else "none"), form
        assert all(isinstance(json.loads(call.arguments), dict) for call in form.calls), form


@EACH
def test_each_form_says_the_same_streamed_wherever_it_is_split(tool_format: str) -> None:
    for form in forms(tool_format):
        for at in range(len(form.text)):
            answer = stream(form)
            deltas = [answer.push(form.text[:at]), answer.push(form.text[at:]), answer.finish()]
            assert whole_answer(deltas) == ParsedAnswer("", form.content, form.calls), (form, at)
        answer = stream(form)
        assert whole_answer([*map(answer.push, form.text), answer.finish()]) == ("", form.content, form.calls), form


@EACH
def test_each_form_says_the_same_where_markers_are_tokens(tool_format: str) -> None:
    for form in forms(tool_format):
        if any(marker in call.arguments for call in form.calls for marker in MARKS):
            continue  # there it is text
        text, content = form.text, form.content
        for marker, mark in MARKS.items():
            text, content = text.replace(marker, mark), content.replace(marker, "")
        assert parse(text, stream(form)) == ParsedAnswer("", content, form.calls), form


@EACH
def test_cut_off_anywhere_no_beginning_of_a_marker_or_a_call_is_content(tool_format: str) -> None:
    for form in forms(tool_format):
        for length in range(len(form.text)):
            check_cut_off(form, form.text[:length])


def check_cut_off(form: Form, text: str) -> None:
    """`text` is what has been written of it."""
    whole, parts = stream(form), stream(form)
    said = whole_answer([whole.push(text), whole.cut()])
    assert whole_answer([*map(parts.push, text), parts.cut()]) == said, text
    assert parts.calls == whole.calls, text
    if form.calls and not may_be_other_json(text, form):
        assert form.content.startswith(said.content), text
    ended = said.calls if whole.calls == "whole" else said.calls[:-1]
    assert ended == form.calls[: len(ended)], text
    assert said.calls or whole.calls != "whole", text


def may_be_other_json(text: str, form: Form) -> bool:
    """Whether an answer without a marker has begun, and its object has none of the members that make it a call."""
    return bool(FORMATS[form.tool_format].bare) and not re.search(r'"(name|arguments|parameters)"\s*:', text)


def test_a_deep_or_a_long_call_is_read_or_is_content() -> None:
    deep = '<tool_call>{"name": "get", "arguments": ' + '{"a": ' * 20_000 + "1" + "}" * 20_000 + "}</tool_call>"
    assert parse(deep, AnswerStream(FORMATS["hermes"], NAMES)) == ParsedAnswer(content=deep)
    number = '{"a": ' + "9" * 6_000 + "}"
    long = f'<tool_call>{{"name": "get", "arguments": {number}}}</tool_call>'
    assert parse(long, AnswerStream(FORMATS["hermes"], NAMES)).calls[0].arguments == number
    lists = "[" * 20_000
    assert parse(lists, AnswerStream(FORMATS["json"], NAMES)) == ParsedAnswer(content=lists)


def test_a_call_that_a_grammar_writes_is_released_as_it_is_written_and_another_when_it_is_whole() -> None:
    written = ['<tool_call>\n{"name": "get", "arguments": {"a": ', '"x', '"', "}", "}\n</tool_call>"]
    bound, free = AnswerStream(FORMATS["hermes"], NAMES, constrained=True), AnswerStream(FORMATS["hermes"], NAMES)
    assert [bound.push(text).calls[0].arguments for text in written[:4]] == ['{"a": ', '"x', '"', "}"]
    assert [free.push(text) for text in written[:4]] == [AnswerDelta()] * 4
    assert free.push(written[4]).calls[0].arguments == '{"a": "x"}'
    assert bound.push(written[4]) == bound.finish() == free.finish() == AnswerDelta()
    assert bound.calls == free.calls == "whole"


@pytest.mark.parametrize(
    ("text", "following", "content"),
    [
        ("see <", "", "see "),
        ("see <", "END", "see <"),
        ("see <", "tool_call>", "see "),
        ("see <to", "o", "see "),
        ("see <to", "p>", "see <to"),
        ('<tool_call>{"name"', "x", ""),
        ("see ", "", "see "),
    ],
)
def test_what_follows_a_cut_tells_whether_a_marker_has_begun(text: str, following: str, content: str) -> None:
    answer = AnswerStream(FORMATS["hermes"], NAMES)
    assert whole_answer([answer.push(text), answer.cut(following)]) == ParsedAnswer(content=content)


def test_a_cut_marker_of_reasoning_is_no_reasoning() -> None:
    for text, said in (("<thi", ""), ("<think>hm </th", "hm"), ("<think>hm", "hm"), ("<b", "<b")):
        answer = AnswerStream(FORMATS["hermes"], NAMES, Reasoning("<think>", "</think>"))
        parsed = whole_answer([answer.push(text), answer.cut()])
        assert parsed.reasoning + parsed.content == said
