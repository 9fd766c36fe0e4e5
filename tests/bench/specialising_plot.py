"""Draws the gain of task drafts: by width of the draft and answers per task, and by distance of the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train_jobs.drafts.candidates import TASK

if TYPE_CHECKING:
    from tests.bench.specialising import Outcome

_COLOURS = ("#b9770e", "#1f5fa8", "#12806a", "#a3386f")


def plot(outcomes: Sequence[Outcome], distances: Mapping[str, float], file: Path) -> None:
    """Left: a line per number of answers over widths. Right, if there are distances: a dot per task and case."""
    figure = Figure(figsize=(9.0 if distances else 4.6, 3.4), layout="constrained")
    left, *others = figure.subplots(1, 2 if distances else 1, squeeze=False)[0]
    for colour, answers in zip(_COLOURS, sorted({outcome.case.answers for outcome in outcomes}), strict=False):
        found = sorted((one for one in outcomes if one.case.answers == answers), key=lambda one: one.case.width)
        gains = [one.kinds[TASK].gain for one in found]
        ends = [[gain.difference - gain.low for gain in gains], [gain.high - gain.difference for gain in gains]]
        widths = [one.case.width for one in found]
        left.errorbar(widths, [gain.difference for gain in gains], ends, marker="o", color=colour, capsize=3)
        left.annotate(
            f"{answers} answers", (widths[-1], gains[-1].difference), xytext=(6, 0), textcoords="offset points"
        )
    left.axhline(0.0, color="#767676", linewidth=0.8)
    left.set_xscale("log", base=2)
    left.set_xticks(sorted({one.case.width for one in outcomes}), sorted({one.case.width for one in outcomes}))
    left.margins(x=0.3)
    left.set_xlabel("width of the draft")
    left.set_ylabel("gain in acceptance\nover the base trained on")
    for right in others:
        _by_distance(right, outcomes, distances)
    for axes in (left, *others):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=160, metadata={"Software": None})


def _by_distance(panel: Axes, outcomes: Sequence[Outcome], distances: Mapping[str, float]) -> None:
    for colour, outcome in zip(_COLOURS, outcomes, strict=False):
        gains = [outcome.by_task[task].difference for task in distances]
        panel.plot(list(distances.values()), gains, "o", color=colour, label=str(outcome.case))
    panel.axhline(0.0, color="#767676", linewidth=0.8)
    panel.legend(frameon=False, fontsize=8)
    panel.set_xlabel("distance of a task to the nearest other")
