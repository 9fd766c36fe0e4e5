"""The table of a run: what each kind of fault did to the answers that were under way."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.bench.chaos.checker import Verdict
from tests.bench.chaos.history import Entry

COLUMNS = ("fault", "times", "answers", "altered", "hung", "refused", "cut and continued", "lost", "pause", "longest")
_ALTERING = {"prefix", "whole", "ending", "silence", "continued"}


class Window(NamedTuple):
    """A fault and its consequences: until the next one begins."""

    name: str
    began: float
    ended: float


@dataclass
class Row:
    """`pauses` are the longest of each answer that was under way, in seconds."""

    times: int = 0
    answers: int = 0
    altered: int = 0
    hung: int = 0
    refused: int = 0
    cut: int = 0
    lost: int = 0
    pauses: list[float] = field(default_factory=list)


def windows(entries: Sequence[Entry]) -> list[Window]:
    faults = sorted((entry for entry in entries if entry.kind == "fault" and entry.value), key=lambda entry: entry.at)
    begins = [(_kind(str(entry.value)), entry.at) for entry in faults]
    last = max((entry.at for entry in entries), default=0.0)
    ends = [at for _, at in begins[1:]] + [last]
    return [Window(name, at, end) for (name, at), end in zip(begins, ends, strict=True)]


def _kind(name: str) -> str:
    """A fault that could not be inflicted is another kind; why is in the history."""
    kind, failed, _ = name.partition(", which failed")
    return kind + failed


def rows(entries: Sequence[Entry], verdict: Verdict) -> dict[str, Row]:
    """By the name of the fault. An answer counts for every fault that it met, an event for the fault it came in."""
    table: defaultdict[str, Row] = defaultdict(Row)
    progress = _progress(entries)
    for window in windows(entries):
        row = table[window.name]
        row.times += 1
        for request in verdict.requests:
            if request.began < window.ended and request.ended >= window.began:
                row.answers += 1
                row.lost += request.outcome in ("failed", "unfinished") and request.ended < window.ended
                row.pauses += [_longest(progress[request.number], window)] if request.number in progress else []
        begun = defaultdict[int, bool](bool)
        for entry in entries:
            if has_tokens(entry):
                begun[entry.request] = True
            if entry.kind == "end" and window.began <= entry.at < window.ended:
                row.refused += entry.value == "refused" or (entry.value == "closed" and not begun[entry.request])
                row.cut += entry.value == "closed" and begun[entry.request]
        for violation in verdict.violations:
            if window.began <= violation.at < window.ended:
                row.altered += violation.rule in _ALTERING
                row.hung += violation.rule == "hang"
    return dict(sorted(table.items()))


def markdown(table: dict[str, Row]) -> str:
    """Pauses in seconds: the median and the longest of the answers' longest waits for a chunk."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for name, row in table.items():
        pauses = [f"{statistics.median(row.pauses):.1f}", f"{max(row.pauses):.1f}"] if row.pauses else ["", ""]
        counts = (row.times, row.answers, row.altered, row.hung, row.refused, row.cut, row.lost)
        lines.append(f"| {' | '.join([name, *map(str, counts), *pauses])} |")
    return "\n".join(lines)


def has_tokens(entry: Entry) -> bool:
    """Whether it is a chunk with tokens, or with the finish reason behind them."""
    if entry.kind != "event" or entry.value == "[DONE]":
        return False
    choices = json.loads(str(entry.value)).get("choices") or ()
    return any(choice["token_ids"] or choice["finish_reason"] for choice in choices)


def _progress(entries: Iterable[Entry]) -> dict[int, list[float]]:
    """When every request was first sent, and when its chunks came."""
    times: defaultdict[int, list[float]] = defaultdict(list)
    for entry in entries:
        if has_tokens(entry) or (entry.kind == "sent" and entry.request not in times):
            times[entry.request].append(entry.at)
    return times


def _longest(times: Sequence[float], window: Window) -> float:
    """The longest wait for a chunk that overlaps the window."""
    pairs = itertools.pairwise(times)
    return max((end - begin for begin, end in pairs if begin < window.ended and end >= window.began), default=0.0)
