"""The parts of an answer, whole and as what is new in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class ToolCall(NamedTuple):
    """A call of a tool; `arguments` is the JSON text of the arguments so far."""

    name: str
    arguments: str


class ParsedAnswer(NamedTuple):
    """What a text says."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class CallDelta(NamedTuple):
    """What is new in the call `index`; the name only in the first delta of a call."""

    index: int  # type: ignore[assignment]  # hides the method of tuples, which nobody needs
    name: str | None
    arguments: str


class AnswerDelta(NamedTuple):
    """What is new since the last delta."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallDelta, ...] = ()


def joined(deltas: Iterable[AnswerDelta]) -> AnswerDelta:
    """Deltas that follow each other as one, in which every call occurs once."""
    reasoning: list[str] = []
    content: list[str] = []
    names: dict[int, str | None] = {}
    arguments: dict[int, list[str]] = {}
    for delta in deltas:
        reasoning.append(delta.reasoning)
        content.append(delta.content)
        for call in delta.calls:
            names.setdefault(call.index, call.name)
            arguments.setdefault(call.index, []).append(call.arguments)
    calls = tuple(CallDelta(index, name, "".join(arguments[index])) for index, name in names.items())
    return AnswerDelta("".join(reasoning), "".join(content), calls)


def whole_answer(deltas: Iterable[AnswerDelta]) -> ParsedAnswer:
    """The answer that all its deltas make up."""
    delta = joined(deltas)
    calls = tuple(ToolCall(call.name or "", call.arguments) for call in delta.calls)
    return ParsedAnswer(delta.reasoning, delta.content, calls)
