"""The view of a retraining's progress: a spinner with what is at work on a terminal, lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

LINE_SECONDS = 10.0  # between two lines of a stage in a pipe


class UnitProgress(NamedTuple):
    """Progress of one unit of a stage, with a note such as its loss."""

    done: int
    total: int
    note: str

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total > 0 else 1.0


class StageSize(NamedTuple):
    """The number of units of a stage; `work` is the sum of their totals if their sizes differ."""

    units: int
    work: int | None = None

    def done(self, units: Mapping[str, UnitProgress]) -> float:
        """Finished work, in units."""
        if not self.work:
            return sum(unit.share for unit in units.values())
        return self.units * sum(unit.done for unit in units.values()) / self.work


class ProgressView:
    """Shows one stage after another: under a spinner on a terminal, in a line every `LINE_SECONDS` in a pipe.

    `stages` names all of them in order.
    """

    def __init__(self, console: Console, stages: Sequence[str] = ()) -> None:
        self._console = console
        self._stages = stages
        self._status = console.status("") if console.is_terminal else None
        self._stage, self._size = "", StageSize(0)
        self._printed_at = 0.0
        self._first: tuple[float, float] | None = None  # time of the first report, and the work done by then

    def begin(self, stage: str, size: StageSize) -> None:
        self._stage, self._size, self._first = stage, size, None
        self._printed_at = time.monotonic()
        if self._status is None:
            print_line(self._console, f"{stage}: begun, {_of(0, size.units)}")
        else:
            self._status.update(Text(f"{stage}{self._nth()}: {_of(0, size.units)}"))
            self._status.start()

    def show(self, units: Mapping[str, UnitProgress]) -> None:
        now, done = time.monotonic(), self._size.done(units)
        if units and self._first is None:
            self._first = now, done
        running = [f"{name} {unit.done}/{unit.total} {unit.note}" for name, unit in units.items() if unit.share < 1.0]
        over = f"{_of(len(units) - len(running), self._size.units)}{self._left(now, done)}"
        if self._status is not None:
            self._status.update(Text("\n  ".join([f"{self._stage}{self._nth()}: {over}", *running])))
        elif now - self._printed_at >= LINE_SECONDS:
            self._printed_at = now
            print_line(self._console, "; ".join([f"{self._stage}: {over}", *running]).rstrip())

    def end(self, line: str) -> None:
        """Remove the stage, if one is shown, and print a line."""
        self.close()
        print_line(self._console, line)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()

    def _nth(self) -> str:
        """Nothing for a stage that shows its work in several parts of other names."""
        if self._stage not in self._stages:
            return ""
        return f" (stage {self._stages.index(self._stage) + 1} of {len(self._stages)})"

    def _left(self, now: float, done: float) -> str:
        if self._first is None or done <= self._first[1]:
            return ""
        began, before = self._first
        seconds = (self._size.units - done) * (now - began) / (done - before)
        return f", {timedelta(seconds=round(max(0.0, seconds)))} left"


def _of(done: int, total: int) -> str:
    return f"{done} of {total}"


def print_line(console: Console, line: str) -> None:
    """Print a line without wrapping, markup or colours."""
    console.print(Text(line), soft_wrap=True)
