"""The plots of the report, except those of training runs. A plot without figures is left out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from core.tasks.clustering import REAPPEARS, KScore
from train_jobs.report.drawing import ALL, COLOURS, FAINT, INK, MARKS, NARROW, RULE, WIDE, bare, drawn, legible
from train_jobs.report.drawing import task_labels as labels_of
from train_jobs.report.learning_curves import curves
from train_jobs.work.findings import Findings, Pooled, PublishedFigures, Routing, SlotFindings

_Points = Sequence[tuple[int, float]]


def plots(findings: Findings) -> dict[str, bytes]:
    """PNGs by name, in the order of the page."""
    labels = labels_of(findings.slots)
    ks = findings.ks
    images: dict[str, bytes | None] = {
        "drafts": _drafts(findings.slots, labels),
        "served": _served(findings.served),
        "k-silhouette": _k_silhouette(ks, findings.k),
        "k-reappearance": _k_reappearance(ks, findings.k),
        "confusion": _confusion(findings.routing, labels),
        "curves": curves(findings.runs, list(labels.values())),
    }
    return {name: png for name, png in images.items() if png is not None}


def _drafts(slots: Sequence[SlotFindings], labels: dict[str, str]) -> bytes | None:
    kinds = [kind for kind in COLOURS if any(pooled.name == kind for slot in slots for pooled in slot.pooled)]
    rows = [kind for kind in kinds if kind != "general"]
    block = len(rows) + 1  # a kind a row, and a row of air

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for number, slot in enumerate(slots):
            _draw_slot(axes, slot, rows, number * block)
            axes.axhline(number * block - 1, color=RULE, linewidth=0.6)
        centres = [number * block + (len(rows) - 1) / 2 for number in range(len(slots))]
        axes.set_yticks(centres, ["all prompts" if slot.task == ALL else labels[slot.task] for slot in slots])
        _beside(axes, (1.0, -1.7), "serves", FAINT)
        axes.set_ylim(len(slots) * block - 0.8, -1.2)
        axes.set_xlabel("tokens a second, times plain decoding, on test prompts")
        axes.locator_params(axis="x", nbins=6)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        bare(axes, "left")
        handles = [_handle(kind) for kind in kinds]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(kinds), labelcolor="linecolor")

    return drawn(WIDE, 0.155 * block * len(slots) + 0.8, draw) if slots else None


def _draw_slot(axes: Axes, slot: SlotFindings, rows: Sequence[str], top: int) -> None:
    pooled = {draft.name: draft for draft in slot.pooled}
    general = pooled.get("general")
    if general is not None:
        extent = [top - 0.55, top + len(rows) - 0.45]
        axes.plot([general.speedup] * 2, extent, color=COLOURS["general"], linewidth=1.6)
    for place, kind in enumerate(rows, top):
        seeds = [draft.speedup for draft in slot.candidates if draft.name == kind and draft.seed is not None]
        if len(seeds) > 1:
            axes.plot(seeds, [place] * len(seeds), "|", color=COLOURS[kind], markersize=6, alpha=0.55)
        if kind in pooled:
            _draw_draft(axes, pooled[kind], general, place)
    middle = top + (len(rows) - 1) / 2
    _beside(axes, (1.0, middle), slot.decision, COLOURS.get(slot.decision, INK))


def _beside(axes: Axes, place: tuple[float, float], text: str, colour: str) -> None:
    """Text right of the axes, at a height given in data coordinates."""
    axes.annotate(
        text,
        place,
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=colour,
    )


def _draw_draft(axes: Axes, draft: Pooled, general: Pooled | None, place: int) -> None:
    """The speedup of a draft, and the interval of its difference to general, drawn around general."""
    colour = COLOURS[draft.name]
    if general is not None and draft.versus_general is not None:
        ends = [general.speedup * (1 + end) for end in (draft.versus_general.low, draft.versus_general.high)]
        axes.plot(ends, [place, place], color=colour, linewidth=1.2)
    axes.plot(draft.speedup, place, MARKS[draft.name], color=colour, markersize=4.6)


def _handle(kind: str) -> Line2D:
    if kind == "general":
        return Line2D([], [], color=COLOURS[kind], marker="|", markersize=9, linestyle="none", label=kind)
    return Line2D([], [], color=COLOURS[kind], marker=MARKS[kind], markersize=4.6, linewidth=1.2, label=kind)


def _served(served: Sequence[PublishedFigures]) -> bytes | None:
    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, figures in enumerate(served):
            before, after = figures.general_speedup, figures.speedup
            axes.plot([before, after], [row, row], color=RULE, linewidth=2.5, zorder=1)
            _draw_end(axes, before, row, COLOURS["general"], on_left=before <= after, word="general ", first=row == 0)
            _draw_end(axes, after, row, INK, on_left=before > after, word=" published", first=row == 0)
        axes.set_yticks(range(len(served)), [f"temperature {figures.temperature:g}" for figures in served])
        axes.set_ylim(len(served) - 0.5, -0.5)
        axes.set_xlabel("tokens a second, times plain decoding")
        axes.margins(x=0.3)
        bare(axes, "left")

    return drawn(WIDE, 0.3 * len(served) + 0.55, draw) if served else None


def _draw_end(axes: Axes, value: float, row: int, colour: str, *, on_left: bool, word: str, first: bool) -> None:
    """A dot with its value beside it; the first row also names the draft."""
    axes.plot(value, row, "o", color=colour, markersize=5.5)
    word = word.strip() if first else ""
    text = f"{word} {value:.2f}" if on_left else f"{value:.2f} {word}"
    axes.annotate(
        text.strip(),
        (value, row),
        xytext=(-7 if on_left else 7, 0),
        textcoords="offset points",
        ha="right" if on_left else "left",
        va="center_baseline",
        color=colour,
    )


def _k_silhouette(ks: Sequence[KScore], chosen: int) -> bytes | None:
    silhouettes = [(score.k, score.silhouette) for score in ks]
    permuted = [(score.k, score.permuted_silhouette) for score in ks]
    return _by_k({"prompts": silhouettes, "permuted": permuted}, chosen, "silhouette")


def _k_reappearance(ks: Sequence[KScore], chosen: int) -> bytes | None:
    agreement = [(score.k, score.reappearance) for score in ks]
    return _by_k({"halves": agreement, "needed": [(k, REAPPEARS) for k, _ in agreement]}, chosen, "agreement of halves")


def _by_k(lines: dict[str, _Points], chosen: int, title: str) -> bytes | None:
    """The first line is the figure itself, the second its baseline."""
    figure_line, _ = lines.values()

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for (name, points), (ink, style) in zip(lines.items(), ((INK, "o-"), (FAINT, "--")), strict=True):
            axes.plot(*zip(*points, strict=True), style, color=ink, markersize=3.5)
            axes.annotate(name, points[-1], xytext=(7, 0), textcoords="offset points", va="center", color=ink)
        for k, value in figure_line:
            if k == chosen:
                axes.plot(k, value, "o", color=INK, markersize=9, markerfacecolor="none", markeredgewidth=1.0)
        axes.set_xticks([k for k, _ in figure_line])
        axes.set_xlabel("number of tasks k")
        axes.set_title(title, pad=8)

    return drawn(NARROW, 2.1, draw) if figure_line else None


def _confusion(routing: Routing | None, labels: dict[str, str]) -> bytes | None:
    if routing is None:
        return None
    names = [labels.get(name, name) for name in routing.classes]
    names = [name if legible(name) else f"class {number}" for number, name in enumerate(names, 1)]
    side = 0.42 * len(names)
    return drawn(side + 1.9, side + 1.5, partial(_draw_confusion, routing.confusion, names))


def _draw_confusion(counts: Sequence[Sequence[int]], names: Sequence[str], figure: Figure) -> None:
    axes = figure.add_subplot()
    shares = [[count / max(1, sum(row)) for count in row] for row in counts]
    shades = LinearSegmentedColormap.from_list("task", ["white", COLOURS["task"]])
    axes.imshow(shares, cmap=shades, vmin=0, vmax=1)
    for row, (row_counts, of_row) in enumerate(zip(counts, shares, strict=True)):
        for column, (count, share) in enumerate(zip(row_counts, of_row, strict=True)):
            if count:
                axes.text(column, row, str(count), ha="center", va="center", color="white" if share > 0.5 else INK)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("task by the router")
    axes.set_ylabel("task by the partition")
    for edge in range(1, len(names)):
        axes.axhline(edge - 0.5, color=RULE, linewidth=0.5)
        axes.axvline(edge - 0.5, color=RULE, linewidth=0.5)
    bare(axes, "left", "bottom")
