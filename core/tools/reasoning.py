"""The target's reasoning, which comes before all else in an answer, and the markers around it."""

from __future__ import annotations

from typing import NamedTuple

from core.tools.markers import declared


class Reasoning(NamedTuple):
    """The markers that begin and end it."""

    begin: str
    end: str


KNOWN = tuple(
    Reasoning(declared(begin), declared(end)) for begin, end in (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
)


def reasoning_of(template: str) -> Reasoning | None:
    """The markers of reasoning that a chat template has; None if it has none that are known."""
    return next((reasoning for reasoning in KNOWN if reasoning.end in template), None)
