"""What drafts bring that learned from few or many answers: the figures, their table and their plot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from core.confidence_intervals import Difference, Estimate, compare, over_prompts
from core.replay.replay import AcceptanceCounts
from core.traces.store import Trace
from tests.bench.output import header
from train_jobs.report.drawing import COLOURS, WIDE, drawn

SHIPPED = "shipped"
TEMPERATURES = (0.0, 0.7, 1.0)


class Point(NamedTuple):
    """Tokens per target pass of one draft at one temperature, and its difference from the draft before it."""

    draft: str
    temperature: float
    answers: int
    tokens_per_pass: Estimate
    more: Difference | None


def points(judging: Sequence[Trace], counts: Mapping[str, Sequence[AcceptanceCounts]]) -> Iterator[Point]:
    """Of drafts in the order of what they learned from."""
    for temperature in TEMPERATURES:
        chosen = [place for place, trace in enumerate(judging) if trace.params.temperature == temperature]
        if not chosen:
            continue
        prompts, before = [judging[place].prompt_ids for place in chosen], None
        for draft, of_all in counts.items():
            ours = [of_all[place] for place in chosen]
            more = None if before is None else compare(ours, before, prompts, "tokens_per_pass")
            yield Point(draft, temperature, len(chosen), over_prompts(ours, prompts, "tokens_per_pass"), more)
            before = ours


def table(found: Sequence[Point]) -> list[str]:
    """Lines of Markdown, with a row for each draft and temperature."""
    lines = header(
        ["temperature", "answers that judge", "learned from", "tokens per pass (95 %)", "beside the row above"]
    )
    for point in found:
        more = "" if point.more is None else _interval(point.more, signed=True)
        cells = [f"{point.temperature:g}", str(point.answers), point.draft, _interval(point.tokens_per_pass), more]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def plot(found: Sequence[Point], file: Path) -> None:
    """Tokens per pass by the number of answers; a line for each temperature, the shipped draft's dashed."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for temperature, colour in zip(TEMPERATURES, COLOURS.values(), strict=False):
            of = [point for point in found if point.temperature == temperature]
            ours = [point for point in of if point.draft != SHIPPED]
            values = [point.tokens_per_pass.value for point in ours]
            reach = [[abs(value - end) for value, end in zip(values, ends, strict=True)] for ends in _ends(ours)]
            numbers = [int(point.draft) for point in ours]
            axes.errorbar(numbers, values, reach, color=colour, marker="o", capsize=2, label=f"T = {temperature:g}")
            for point in of:
                if point.draft == SHIPPED:
                    axes.axhline(point.tokens_per_pass.value, color=colour, linewidth=0.8, linestyle="--")
        axes.set_xscale("log")
        axes.set_xlabel("answers that the draft learned from")
        axes.set_title("tokens per target pass, draft alone (dashed: the shipped draft)")
        axes.legend()

    file.write_bytes(drawn(WIDE, 3.6, draw))


def _ends(found: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.tokens_per_pass.low for point in found], [point.tokens_per_pass.high for point in found]


def _interval(found: Estimate | Difference, *, signed: bool = False) -> str:
    value, low, high = found
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f})" if signed else f"{value:.3f} ({low:.3f} to {high:.3f})"
