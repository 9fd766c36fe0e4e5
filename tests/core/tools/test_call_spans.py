"""Which parts of an answer are calls that a grammar holds, wherever the text is cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tools.answer_stream import AnswerStream
from core.tools.call_spans import CallSpans, TextSpan
from core.tools.formats import FORMATS
from core.tools.markers import MARKS
from core.tools.reasoning import Reasoning
from tests.core.tools.parsed import parse

THINK = Reasoning("<think>", "</think>")
CALL = '{"name": "get", "arguments": {"a": "}]\\"</tool_call>[TOOL_CALLS] END", "b": [{}]}}'
HERMES, MISTRAL = f"<tool_call>\n{CALL}\n</tool_call>", f"[TOOL_CALLS] [{CALL}, {CALL}]"
NAMED = f"{MARKS['[TOOL_CALLS]']}get{MARKS['[ARGS]']}" + '{"a": "]"}'
# Texts that grammars of calls accept, in parts: content or reasoning, then a call, and so on.
ANSWERS: list[tuple[str, tuple[str, ...]]] = [
    ("hermes", ("", HERMES)),
    ("hermes", ("<think>a <tool_call> END</think>\n\nI look <", HERMES, "\n", HERMES, " END <tool_")),
    ("hermes", ("a <tool <tool_", HERMES, "<")),
    ("hermes", ("", HERMES.replace("<tool_call>", MARKS["<tool_call>"], 1), "")),
    ("mistral", ("I [TOOL", MISTRAL, "", MISTRAL, "[] {}")),
    ("mistral", ("<think></think>", NAMED, "", NAMED)),
    ("llama3", ("<think>{END}</think>\n", f"{CALL}; {CALL}")),
    ("json", ("", f"[{CALL}]")),
    ("json", (f"So {CALL}",)),
    ("json", (f"```json\n{CALL}\n```",)),
    ("llama3", (f"[{CALL}]",)),
    ("hermes", ("<think>END",)),
]


def joined(spans: Sequence[TextSpan]) -> list[TextSpan]:
    """Parts of a kind that follow each other as one."""
    together: list[TextSpan] = []
    for text, in_call in spans:
        before = together.pop().text if together and together[-1].in_call == in_call else ""
        together.append(TextSpan(before + text, in_call))
    return together


def split(text: str, cuts: Sequence[int], tool_format: str) -> list[TextSpan]:
    spans, bounds = CallSpans(FORMATS[tool_format], THINK, opened=False), sorted({0, *cuts, len(text)})
    parts = [part for begin, end in pairwise(bounds) for part in spans.push(text[begin:end])]
    return joined([*parts, *spans.finish()])


@pytest.mark.parametrize(("tool_format", "parts"), ANSWERS)
def test_a_call_is_in_it_from_its_marker_to_its_end_however_the_answer_is_cut(
    tool_format: str, parts: tuple[str, ...]
) -> None:
    text = "".join(parts)
    expected = joined([TextSpan(part, number % 2 == 1) for number, part in enumerate(parts) if part])
    assert split(text, range(len(text)), tool_format) == expected
    assert all(split(text, [at], tool_format) == expected for at in range(len(text)))


@pytest.mark.parametrize(("tool_format", "parts"), ANSWERS)
def test_what_is_in_no_call_is_the_content_and_the_reasoning_of_the_answer(
    tool_format: str, parts: tuple[str, ...]
) -> None:
    answer = parse("".join(parts), AnswerStream(FORMATS[tool_format], ("get",), THINK, constrained=True))
    shown = "".join(parts[::2]).replace(THINK.begin, "").replace(THINK.end, "")
    assert f"{answer.reasoning} {answer.content}".split() == shown.split()


@given(
    st.lists(st.sampled_from([HERMES, MISTRAL, CALL, "<tool_call>", "<", "{", "]", " ", "<think>", "a"]), max_size=9)
)
def test_all_of_a_text_is_released_whatever_it_is(parts: list[str]) -> None:
    text = "".join(parts)
    for tool_format in FORMATS:
        spans: Any = split(text, range(len(text)), tool_format)
        assert "".join(span.text for span in spans) == text
        assert spans == split(text, [], tool_format)


def test_only_what_may_become_a_marker_waits() -> None:
    spans = CallSpans(FORMATS["hermes"], THINK, opened=True)
    assert spans.push("hm</think>") == [TextSpan(char, False) for char in "hm</think>"]
    assert spans.push("a <tool") == [TextSpan("a", False), TextSpan(" ", False)]
    assert spans.push(" ") == [TextSpan("<tool", False), TextSpan(" ", False)]
    assert joined(spans.push('<tool_call>{"a"')) == [TextSpan('<tool_call>{"a"', True)]
    assert spans.push(":") == [TextSpan(":", True)]
