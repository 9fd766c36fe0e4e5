"""The plots of training runs: learning curves, and a chart of when each run was active."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train_jobs.report.drawing import COLOURS, FAINT, INK, RULE, WIDE, bare, drawn, legible
from train_jobs.report.wording import KINDS, time_unit
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


def gantt(runs: Sequence[RunTime], tasks: Sequence[str]) -> bytes | None:
    """A bar per run, from its start to its end."""
    labelled = sorted((_read(time, tasks) for time in runs), key=lambda run: (run.time.began, run.time.ended))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        zero = labelled[0].time.began
        unit, word = time_unit(max(run.time.ended for run in labelled) - zero)
        for row, run in enumerate(labelled):
            began, ended = ((moment - zero) / unit for moment in (run.time.began, run.time.ended))
            axes.barh(row, ended - began, left=began, height=0.66, color=COLOURS.get(run.kind, FAINT))
        axes.set_yticks(range(len(labelled)), [f"{run.subject}{run.seed and ', seed ' + run.seed}" for run in labelled])
        axes.set_ylim(len(labelled) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"{word} since the first run began")
        axes.grid(axis="x", color=RULE)
        axes.set_axisbelow(True)
        bare(axes, "left")

    return drawn(WIDE, 0.17 * len(labelled) + 0.6, draw) if labelled else None


def _read(time: RunTime, tasks: Sequence[str]) -> _LabelledRun:
    named = _NAME.fullmatch(time.name)
    if named is None:
        return _LabelledRun(time.name if legible(time.name) else "a run", "", "", time)
    if named["task"] is None:
        return _LabelledRun(KINDS.get(named["kind"], named["kind"]), named["seed"], named["kind"], time)
    task = int(named["task"])
    return _LabelledRun(tasks[task] if task < len(tasks) else f"task {task + 1}", named["seed"], "task", time)
