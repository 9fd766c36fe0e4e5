"""The text of the report, on the page and in plots: formats of figures, and what became of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from core.bundle.manifest import MeasuredCosts
from core.replay.replay import NUM_SPECULATIVE_TOKENS
from core.tasks.identity import TaskChange

_CHANGES = {
    "kept": "{after} is kept",
    "split": "{after} split off from {before}",
    "new": "{after} is new",
    "merged": "{before} went into {after}",
    "vanished": "{before} vanished",
}

_MINUTE, _HOUR = 60, 3600
_ROWS = 1 + NUM_SPECULATIVE_TOKENS  # of the largest pass in a replay


def duration(seconds: float) -> str:
    """Such as `12 s`, `3 min 5 s`, `2 h 40 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    minutes = round(seconds / _MINUTE)
    return f"{minutes // _MINUTE} h {minutes % _MINUTE} min"


def gain(share: float) -> str:
    """Such as `+2.8 %`; the minus is as wide as the plus."""
    return f"{100 * share:+.1f} %".replace("-", "\u2212")


def listed(words: Sequence[object]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def change(task_change: TaskChange) -> str:
    """Such as `protons-moles split off from mass-acid`."""
    return _CHANGES[task_change.what].format(before=task_change.before, after=task_change.after)


def costs_in_words(costs: MeasuredCosts) -> str:
    """What this retraining measured, and that the machine which serves may differ."""
    plain, largest = costs.passes[0], costs.passes[_ROWS - 1]
    tokens = listed([f"{1e3 * seconds:.3g}" for seconds in sorted(set(costs.tokens.values()))])
    return (
        f"This retraining measured them where it ran: {1e3 * plain:.3g} ms for a plain pass, {largest / plain:.2f} "
        f"times that for one over {_ROWS} rows, {tokens} ms for a token of the drafts. A service on another machine "
        "has other costs."
    )


def counted(count: int, word: str) -> str:
    """`1 task`, `6 tasks`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
