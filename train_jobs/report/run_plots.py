"""The learning curves of training runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train_jobs.report.drawing import COLOURS, INK, WIDE, drawn, legible
from train_jobs.report.wording import KINDS
from train_jobs.work.findings import RunTime

_NAME = re.compile(r"(?:task-(?P<task>\d+)|(?P<kind>\w+))-seed-(?P<seed>\d+)")
_MOST_COLUMNS = 3


class _LabelledRun(NamedTuple):
    """A run with its label in plots (a task or a control) and the kind of its draft."""

    subject: str
    seed: str
    kind: str
    time: RunTime


def curves(runs: Sequence[RunTime], tasks: Sequence[str]) -> bytes | None:
    """A panel per task and control, a line per seed, a dot at the step whose weights were kept."""
    panels: dict[str, list[_LabelledRun]] = {}
    for run in (_read(time, tasks) for time in runs if time.steps):
        panels.setdefault(run.subject, []).append(run)
    order = sorted(panels, key=lambda subject: tasks.index(subject) if subject in tasks else len(tasks))
    columns = min(_MOST_COLUMNS, len(panels))
    rows = -(-len(panels) // _MOST_COLUMNS)

    def draw(figure: Figure) -> None:
        for place, subject in enumerate(order, 1):
            _draw_panel(figure.add_subplot(rows, columns, place), subject, panels[subject])
        figure.supxlabel("steps", fontsize=9.0)

    return drawn(WIDE, 1.5 * rows + 0.2, draw) if panels else None


def _draw_panel(axes: Axes, subject: str, runs: Sequence[_LabelledRun]) -> None:
    colour = COLOURS.get(runs[0].kind, INK)
    for run in runs:
        steps, acceptance = run.time.steps, run.time.acceptance
        best = max(range(len(steps)), key=acceptance.__getitem__)
        axes.plot(steps, acceptance, color=colour, linewidth=0.9, alpha=0.7)
        axes.plot(steps[best], acceptance[best], "o", color=colour, markersize=3.5)
    axes.set_title(subject, color=colour)
    axes.locator_params(nbins=3)


def _read(time: RunTime, tasks: Sequence[str]) -> _LabelledRun:
    named = _NAME.fullmatch(time.name)
    if named is None:
        return _LabelledRun(time.name if legible(time.name) else "a run", "", "", time)
    if named["task"] is None:
        return _LabelledRun(KINDS.get(named["kind"], named["kind"]), named["seed"], named["kind"], time)
    task = int(named["task"])
    return _LabelledRun(tasks[task] if task < len(tasks) else f"task {task + 1}", named["seed"], "task", time)
