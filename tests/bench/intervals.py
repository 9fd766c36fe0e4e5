"""A figure of one draft over prompts with its 95 % interval, and how a figure with an interval is written."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from core import confidence_intervals
from core.confidence_intervals import Difference, Figure
from core.replay.replay import AcceptanceCounts
from tests.bench.paired import Ratio

SIGNED = "+.2f"


def over_prompts(found: Sequence[AcceptanceCounts], prompts: Sequence[Hashable], figure: Figure) -> Ratio:
    """The figure of these counts."""
    return Ratio(*confidence_intervals.over_prompts(found, prompts, figure), len(found))


def told(found: Ratio | Difference, form: str) -> str:
    """`form` is the format of a number, such as `+.2f`."""
    value, low, high = found[:3]
    return f"{value:{form}} ({low:{form}} to {high:{form}})"
