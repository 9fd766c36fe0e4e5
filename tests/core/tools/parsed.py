"""Whole answers, parsed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core.tools.answer import AnswerDelta, joined
from core.tools.answer_stream import AnswerStream


class ToolCall(NamedTuple):
    """A call of a tool; `arguments` is JSON."""

    name: str
    arguments: str


class ParsedAnswer(NamedTuple):
    """What a text says."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[ToolCall, ...] = ()


def parse(text: str, stream: AnswerStream) -> ParsedAnswer:
    """A whole answer; `stream` is a fresh one."""
    return whole_answer([stream.push(text), stream.finish()])


def whole_answer(deltas: Iterable[AnswerDelta]) -> ParsedAnswer:
    """The answer that all its deltas make up."""
    delta = joined(deltas)
    calls = tuple(ToolCall(call.name or "", call.arguments) for call in delta.calls)
    return ParsedAnswer(delta.reasoning, delta.content, calls)
