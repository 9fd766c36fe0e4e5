"""The learning curves of training runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train_jobs.report.drawing import COLOURS, INK, WIDE, drawn, legible
from train_jobs.work.findings import RunTime

_NAME = re.compile(r"(?:task-(?P<task>\d+)|(?P<kind>\w+))-seed-\d+")
_MOST_COLUMNS = 3


class _Panel(NamedTuple):
    """What the runs of a panel are of (a task or a control), and the kind of their drafts."""

    subject: str
    kind: str


def curves(runs: Sequence[RunTime], tasks: Sequence[str]) -> bytes | None:
    """A panel per task and control, a line per seed, a dot at the step whose weights were kept."""
    panels: dict[_Panel, list[RunTime]] = {}
    for run in runs:
        if run.steps:
            panels.setdefault(_panel(run.name, tasks), []).append(run)
    order = sorted(panels, key=lambda panel: tasks.index(panel.subject) if panel.subject in tasks else len(tasks))
    columns = min(_MOST_COLUMNS, len(panels))
    rows = -(-len(panels) // _MOST_COLUMNS)

    def draw(figure: Figure) -> None:
        for place, panel in enumerate(order, 1):
            _draw_panel(figure.add_subplot(rows, columns, place), panel, panels[panel])
        figure.supxlabel("steps", fontsize=9.0)

    return drawn(WIDE, 1.5 * rows + 0.2, draw) if panels else None


def _draw_panel(axes: Axes, panel: _Panel, runs: Sequence[RunTime]) -> None:
    colour = COLOURS.get(panel.kind, INK)
    for run in runs:
        best = max(range(len(run.steps)), key=run.acceptance.__getitem__)
        axes.plot(run.steps, run.acceptance, color=colour, linewidth=0.9, alpha=0.7)
        axes.plot(run.steps[best], run.acceptance[best], "o", color=colour, markersize=3.5)
    axes.set_title(panel.subject, color=colour)
    axes.locator_params(nbins=3)


def _panel(name: str, tasks: Sequence[str]) -> _Panel:
    """By the name of a run; see `train_jobs.drafts.candidates`."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        return _Panel(name if legible(name) else "a run", "")
    if parts["task"] is None:
        return _Panel(parts["kind"], parts["kind"])
    task = int(parts["task"])
    return _Panel(tasks[task] if task < len(tasks) else f"task {task + 1}", "task")
