"""What is new in an answer, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Literal

import msgspec

CallsState = Literal["none", "whole", "cut"]
"""Of an answer: no call, calls that are all whole, or a last one that is not."""


class ReasoningPart(msgspec.Struct, frozen=True):
    """More of the reasoning."""

    text: str


class ContentPart(msgspec.Struct, frozen=True):
    """More of the content."""

    text: str


class CallPart(msgspec.Struct, frozen=True):
    """More of the call `index`; the name only in the first delta of a call."""

    index: int
    name: str | None
    arguments: str


Part = ReasoningPart | ContentPart | CallPart


class AnswerDelta(msgspec.Struct, frozen=True):
    """What is new since the last delta, in the order of the answer. Parts that follow each other differ in kind."""

    parts: tuple[Part, ...] = ()

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def content(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, ContentPart))

    @property
    def calls(self) -> tuple[CallPart, ...]:
        return tuple(part for part in self.parts if isinstance(part, CallPart))


def delta_of(parts: Iterable[Part]) -> AnswerDelta:
    """Parts that follow each other as one delta: those of one kind, or of one call, are one part; empty ones none."""
    filled = (part for part in parts if not _is_empty(part))
    return AnswerDelta(tuple(_together(list(alike)) for _, alike in groupby(filled, _kind)))


def joined(deltas: Iterable[AnswerDelta]) -> AnswerDelta:
    """Deltas that follow each other as one."""
    return delta_of(part for delta in deltas for part in delta.parts)


def _kind(part: Part) -> Any:
    return part.index if isinstance(part, CallPart) else type(part)


def _together(alike: list[Part]) -> Part:
    first = alike[0]
    if isinstance(first, CallPart):
        arguments = "".join(part.arguments for part in alike if isinstance(part, CallPart))
        return CallPart(first.index, first.name, arguments)
    return type(first)("".join(part.text for part in alike if not isinstance(part, CallPart)))


def _is_empty(part: Part) -> bool:
    return part.name is None and not part.arguments if isinstance(part, CallPart) else not part.text
