"""The style of all plots: palette, fonts, labels, and the rendering to PNG. Equal drawings give equal bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING

from matplotlib import font_manager, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from train_jobs.work.findings import SlotFindings

INK, FAINT, RULE = "#222222", "#767676", "#dcdcdc"
# Of equal weight; told apart by colour-blind readers too, and in grey by their marks.
COLOURS = {
    "general": "#767676",
    "live": "#12806a",
    "base": "#a3386f",
    "continued": "#7b5ea7",
    "mixed": "#b9770e",
    "task": "#1f5fa8",
}
MARKS = {"general": "|", "live": "D", "base": "^", "continued": "v", "mixed": "s", "task": "o"}
ALL = "all"
WIDE, NARROW = 5.4, 2.9  # inches

_DPI = 200
_FONT = "DejaVu Sans"  # part of matplotlib, so plots are the same everywhere
_LONGEST_LABEL = 24
_STYLE = {
    "font.family": _FONT,
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,  # a name may hold a dollar sign
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.4,
    "xtick.color": FAINT,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "xtick.major.width": 0.6,
    "xtick.major.size": 3.0,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8.5,
    "ytick.major.width": 0.6,
    "ytick.major.size": 3.0,
}


def drawn(width: float, height: float, draw: Callable[[Figure], None]) -> bytes:
    """A figure as PNG; width and height in inches."""
    # on matplotlib's defaults, not on the user's own settings
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        with BytesIO() as file:
            figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
            return file.getvalue()


def task_labels(slots: Sequence[SlotFindings]) -> dict[str, str]:
    """The label of each task in plots: its prompts' label if that is unique, else its name, else its number.

    The font has no Chinese glyphs, and a long name leaves no room for the plot.
    """
    tasks = [slot for slot in slots if slot.task != ALL]
    count = Counter(slot.label for slot in tasks)
    labels: dict[str, str] = {}
    for number, slot in enumerate(tasks, 1):
        own = [slot.label] if slot.label and count[slot.label] == 1 else []
        fit = (name for name in (*own, slot.task) if legible(name) and name not in labels.values())
        labels[slot.task] = next(fit, f"task {number}")
    return labels


def legible(text: str) -> bool:
    """True if a plot can show the text."""
    return 0 < len(text) <= _LONGEST_LABEL and text.isprintable() and all(map(_known, text))


def bare(axes: Axes, *sides: str) -> None:
    """Remove these spines and their tick marks."""
    for side in sides:
        axes.spines[side].set_visible(False)
        axes.tick_params(axis="y" if side == "left" else "x", length=0)


@cache
def _known(char: str) -> bool:
    return font_manager.get_font(font_manager.findfont(_FONT)).get_char_index(ord(char)) != 0
