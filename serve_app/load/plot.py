"""The plot of `taskspec bench`: throughput and latency over the load, as a PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from serve_app.load.figures import Figures, Spread
from serve_app.load.report import Report
from serve_app.load.sending import Streams

COLOURS = {"on": "#1f5fa8", "off": "#767676"}  # distinct for the colour-blind; in grey the marks differ
MARKS = {"on": "o", "off": "s"}
SIZE = (7.2, 5.0)  # inches
STYLE = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.0,
    "axes.grid": True,
    "grid.color": "#dcdcdc",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "text.parse_math": False,  # a model's name may hold a dollar sign
}


Band = tuple[float, float, float]  # lower edge, line, upper edge


def draw(report: Report, file: Path) -> None:
    """Four panels: tokens/s in all and per user, time to the first token, gaps between chunks; bands are quantiles."""
    # Over matplotlib's defaults, because the user may have other settings.
    with style.context(["default", STYLE]):
        figure = Figure(figsize=SIZE, layout="constrained")
        (everyone, user), (first, gap) = figure.subplots(2, 2)
        _draw(everyone, "tokens/s in all", report, lambda of: _alone(of.tokens_per_s))
        _draw(user, "tokens/s per user: p50, p10 to p90", report, lambda of: _middle(of.user_tokens_per_s))
        _draw(first, "first token, ms: p50 to p99", report, lambda of: _upwards(of.ttft_s))
        _draw(gap, "between chunks, ms: p50 to p99", report, lambda of: _upwards(of.chunk_gap_s))
        if len({figures.speculation for figures in report.columns}) > 1:
            everyone.legend()
        figure.suptitle(f"{report.model}", x=0.01, ha="left", fontsize=9.0)
        figure.savefig(file, format="png", dpi=200, metadata={"Software": None})


def _draw(axes: Axes, title: str, report: Report, band: Callable[[Figures], Band | None]) -> None:
    axes.set_title(title)
    closed = isinstance(report.settings.levels[0], Streams)
    axes.set_xlabel("streams" if closed else "requests/s sent")
    loads = sorted({_load(figures) for figures in report.columns})
    axes.set_xscale("log")
    axes.set_xticks(loads, [f"{load:g}" for load in loads])
    axes.minorticks_off()
    for mode in report.settings.modes:
        bands = [(_load(figures), band(figures)) for figures in report.columns if figures.speculation == mode]
        points = sorted((load, *edges) for load, edges in bands if edges is not None)
        if not points:
            continue
        at, low, middle, high = zip(*points, strict=True)
        axes.plot(at, middle, f"{MARKS[mode]}-", color=COLOURS[mode], markersize=4, label=f"speculation {mode}")
        axes.fill_between(at, low, high, color=COLOURS[mode], alpha=0.15, linewidth=0)
    axes.set_ylim(bottom=0)


def _load(figures: Figures) -> float:
    level = figures.level
    return level.streams if isinstance(level, Streams) else level.arrivals_per_s


def _alone(value: float | None) -> Band | None:
    return None if value is None else (value, value, value)


def _middle(spread: Spread | None) -> Band | None:
    return None if spread is None else (spread.p10, spread.p50, spread.p90)


def _upwards(spread: Spread | None) -> Band | None:
    return None if spread is None else (1000 * spread.p50, 1000 * spread.p50, 1000 * spread.p99)
