"""A picture of the dashboard: the queries of every panel, drawn by matplotlib where Grafana would lay it out.

    python -m tests.bench.dashboard                                  # of a service that it starts, in seven minutes
    python -m tests.bench.dashboard --prometheus URL --minutes 30    # of what a Prometheus has scraped by now

The service is that of tests/serve_app/monitoring/stage.py. Grafana itself is in no package that we may use.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from tests.bench.machine import facts
from tests.serve_app.monitoring.board import FILE, Panel, panels
from tests.serve_app.monitoring.prometheus import Prometheus
from tests.serve_app.monitoring.stage import Stage, stage

SCENE = 90.0  # seconds of each part of the rehearsal
STEPS = 180  # of a panel's width
UNIT = 0.31  # inches of a row of Grafana's grid
WIDTH = 17.0  # inches of its 24 columns
GREY, PALE, GREEN, RED = "#707078", "#e2e2e6", "#2a8f3c", "#c4162a"
NO_DATA = "No data"
COLOURS = [*mpl.color_sequences["tab10"], *mpl.color_sequences["Set2"]]
Drawn = list[tuple[str, list[float], list[float]]]  # series: name, times, values


class Window:
    """What a Prometheus has of a job in some time, `start` to `end` in Unix time."""

    def __init__(self, server: Prometheus, start: float, end: float, job: str = ".*") -> None:
        self._server, self._job = server, job
        self.start, self.end = start, end

    def series(self, panel: Panel) -> Drawn:
        """By name; a gap in the times has a value that is no number in it, so that no line crosses it."""
        step = max(1.0, (self.end - self.start) / STEPS)
        found = [
            (query.name(series.labels), *_with_gaps(series.points, step))
            for query in panel.queries
            for series in self._server.range(query.of(self._job), self.start, self.end, step)
        ]
        return sorted(found)


def _with_gaps(points: list[tuple[float, float]], step: float) -> tuple[list[float], list[float]]:
    times, values = list[float](), list[float]()
    for moment, value in points:
        if times and moment - times[-1] > 1.5 * step:
            times.append(times[-1] + step)
            values.append(math.nan)
        times.append(moment)
        values.append(value)
    return times, values


def draw(window: Window, caption: str) -> Figure:
    """The whole dashboard."""
    every = list(panels())
    rows = max(y + height for _, y, _, height in (panel.place for panel in every))
    figure = plt.figure(figsize=(WIDTH, UNIT * rows), layout="constrained")
    figure.suptitle(caption, x=0.005, ha="left", fontsize=9, color=GREY)
    grid = figure.add_gridspec(rows, 24)
    titles = dict[str, int]()
    for panel in every:
        x, y, width, height = panel.place
        titles.setdefault(panel.row, y - 1)
        axes = figure.add_subplot(grid[y : y + height, x : x + width])
        axes.set_title(panel.title, loc="left", fontsize=8.5, weight="bold")
        _DRAWINGS[panel.kind](axes, panel, window.series(panel))
        if panel.kind != "number":
            _frame(axes, panel, window)
    for title, y in titles.items():
        band = figure.add_subplot(grid[y, :])
        band.text(0.0, 0.5, title, fontsize=12, weight="bold", va="center", transform=band.transAxes)
        band.set_axis_off()
    return figure


def _draw_number(axes: Axes, panel: Panel, series: Drawn) -> None:
    """The last value; green or red if it is held to a limit."""
    values = [value for _, _, values in series for value in values if math.isfinite(value)]
    text = f"{_label(panel.unit, values[-1])}{_suffix(panel)}" if values else NO_DATA
    colour = "black" if panel.limit is None or not values else GREEN if values[-1] >= panel.limit else RED
    axes.text(0.5, 0.5, text, transform=axes.transAxes, fontsize=19, ha="center", va="center", color=colour)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(PALE)


def _draw_lines(axes: Axes, panel: Panel, series: Drawn) -> None:
    for (name, times, values), colour in zip(series, COLOURS, strict=False):
        axes.plot(times, values, color=colour, linewidth=1.1, label=name)
    if panel.limit is not None:
        axes.axhline(panel.limit, color=RED, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_ylim(bottom=0.0)


def _draw_stack(axes: Axes, _: Panel, series: Drawn) -> None:
    moments = sorted({moment for _, times, _ in series for moment in times})
    known = [dict(zip(times, values, strict=True)) for _, times, values in series]
    layers = [[values.get(moment, 0.0) or 0.0 for moment in moments] for values in known]
    axes.stackplot(moments, layers, labels=[name for name, _, _ in series], colors=COLOURS, alpha=0.75, linewidth=0)
    axes.set_ylim(bottom=0.0)


def _draw_states(axes: Axes, _: Panel, series: Drawn) -> None:
    """A line for each, as long as it holds."""
    for place, (_, times, _) in enumerate(series):
        axes.scatter(times, [place] * len(times), marker="s", s=30, color=COLOURS[0], linewidths=0)
    axes.set_yticks(range(len(series)), [name for name, _, _ in series])
    axes.set_ylim(-0.6, max(1, len(series)) - 0.4)


_DRAWINGS = {"lines": _draw_lines, "stacked": _draw_stack, "states": _draw_states, "number": _draw_number}


def _frame(axes: Axes, panel: Panel, window: Window) -> None:
    axes.set_xlim(window.start, window.end)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{datetime.fromtimestamp(value, UTC):%H:%M}"))
    if panel.kind != "states":
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _label(panel.unit, value)))
    axes.set_title(_suffix(panel), loc="right", fontsize=7, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(PALE)
    axes.grid(axis="y", color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=6.5, length=0, colors=GREY)
    handles, names = axes.get_legend_handles_labels()
    if handles:
        place = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.08)}
        axes.legend(handles, names, ncols=3 if max(map(len, names)) < 20 else 2, fontsize=6.5, frameon=False, **place)
    elif panel.kind != "states":
        axes.text(0.5, 0.5, NO_DATA, transform=axes.transAxes, ha="center", color=GREY)


def _suffix(panel: Panel) -> str:
    return panel.unit.removeprefix("suffix:") if panel.unit.startswith("suffix:") else ""


def _label(unit: str, value: float) -> str:
    """As Grafana writes a value of this unit, but for a suffix."""
    match unit:
        case "percentunit":
            return f"{100 * value:.3g}%"
        case "s":
            return _duration(value)
        case "reqps":
            return f"{value:.3g}/s"
    return f"{value:.3g}"


def _duration(seconds: float) -> str:
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{1000 * seconds:.3g} ms"


def rehearse(running: Stage) -> None:
    """What the picture has: a task that is new, and a bundle that is a canary before it serves."""
    with running.traffic("english", "python").flowing([]):
        time.sleep(SCENE)
    with running.traffic("english", "python", "math").flowing([]):
        time.sleep(SCENE)
        running.deploy("--canary", "40%")
        time.sleep(SCENE)
        running.deploy()
        time.sleep(SCENE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", metavar="URL", help="one that has scraped a service")
    parser.add_argument("--minutes", type=float, default=30.0, help="until now that are drawn, with --prometheus")
    parser.add_argument("--out", type=Path, default=FILE.with_suffix(".png"))
    chosen = parser.parse_args()
    if chosen.prometheus:
        began = time.time() - 60 * chosen.minutes
        save(draw(Window(Prometheus(chosen.prometheus), began, time.time()), _caption()), chosen.out)
        return
    with tempfile.TemporaryDirectory(prefix="ts") as name, stage(Path(name)) as running:
        began = time.time()
        rehearse(running)
        save(draw(Window(running.server, began, time.time(), running.jobs[0]), _caption()), chosen.out)


def save(figure: Figure, file: Path) -> None:
    """As a PNG with few colours, which is a third of the size."""
    figure.savefig(file, dpi=90)
    Image.open(file).convert("RGB").quantize(96).save(file, optimize=True)
    print(f"{file}: {file.stat().st_size / 1000:.0f} kB")


def _caption() -> str:
    now = facts()
    return f"The dashboard's queries on real data, drawn by matplotlib. {now['processor']}, {now['date']}"


if __name__ == "__main__":
    main()
