"""How every plot of a report looks: palette, type, and what may be written in it.

Enters: a function that draws on a figure. Leaves: a PNG; the same drawing gives the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO

from matplotlib import font_manager, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train_jobs.findings import Slot

INK, FAINT, RULE, FILL = "#222222", "#767676", "#dcdcdc", "#c3ccd6"
# Of even weight, apart also for the colour-blind and, by their marks, in grey.
COLOURS = {"general": "#767676", "live": "#12806a", "mixed": "#b9770e", "full": "#a3386f", "task": "#1f5fa8"}
MARKS = {"general": "|", "live": "D", "mixed": "s", "full": "^", "task": "o"}
ALL = "all"
WIDE, NARROW = 5.4, 2.9  # inches

_DPI = 200
_FONT = "DejaVu Sans"  # comes with matplotlib, so plots are the same everywhere
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
    """The PNG of a figure of so many inches."""
    # over matplotlib's defaults: whoever runs this may have settings of his own
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        with BytesIO() as file:
            figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
            return file.getvalue()


def task_labels(slots: Sequence[Slot]) -> dict[str, str]:
    """What plots call each task: its label where no other has the same, else its name, else its number.

    matplotlib's font knows no Chinese, and a long name leaves no room for the plot.
    """
    tasks = [slot for slot in slots if slot.task != ALL]
    count = Counter(slot.label for slot in tasks)
    found: dict[str, str] = {}
    for number, slot in enumerate(tasks, 1):
        wanted = [slot.label] if slot.label and count[slot.label] == 1 else []
        fit = (name for name in (*wanted, slot.task) if legible(name) and name not in found.values())
        found[slot.task] = next(fit, f"task {number}")
    return found


def legible(text: str) -> bool:
    """Whether a plot can show it."""
    return 0 < len(text) <= _LONGEST_LABEL and text.isprintable() and all(map(_known, text))


def bare(axes: Axes, *sides: str) -> None:
    """Take away these spines and their ticks' marks."""
    for side in sides:
        axes.spines[side].set_visible(False)
        axes.tick_params(axis="y" if side == "left" else "x", length=0)


@cache
def _known(char: str) -> bool:
    return font_manager.get_font(font_manager.findfont(_FONT)).get_char_index(ord(char)) != 0
