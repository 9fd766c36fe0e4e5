"""The two views of a retraining's progress: bars on a terminal, lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from rich import progress as bars
from rich.console import Console
from rich.text import Text

LINE_SECONDS = 10.0  # between two lines of a stage in a pipe
SPEED_SECONDS = 300.0  # window of the speed that the estimated time left is based on


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


class View(Protocol):
    """Shows one stage after another."""

    def open(self) -> None: ...

    def begin(self, stage: str, size: StageSize) -> None: ...

    def show(self, units: Mapping[str, UnitProgress]) -> None: ...

    def end(self, stage: str, line: str) -> None:
        """Remove the stage, if it is shown, and print a line."""

    def close(self) -> None: ...


class TableView:
    """A bar for all `stages` if there are several, one for the current stage, one for each running unit."""

    def __init__(self, console: Console, stages: Sequence[str]) -> None:
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.TextColumn("{task.fields[note]}", markup=False),
            _TimeLeft(),
            console=console,
            transient=True,
            auto_refresh=False,
            speed_estimate_period=SPEED_SECONDS,
        )
        self._stages = stages
        self._size = StageSize(0)
        self._ended = 0  # of `stages`
        self._overall: bars.TaskID | None = None
        self._stage: bars.TaskID | None = None
        self._units: dict[str, bars.TaskID] = {}

    def open(self) -> None:
        if len(self._stages) > 1:
            self._overall = self._bars.add_task(self._nth(), total=len(self._stages), note="", timed=False)
        self._bars.start()

    def begin(self, stage: str, size: StageSize) -> None:
        self._size = size
        self._stage = self._bars.add_task(stage, total=size.units, note=_of(0, size.units), timed=True)
        self._bars.refresh()

    def show(self, units: Mapping[str, UnitProgress]) -> None:
        assert self._stage is not None
        total, done = self._size.units, self._size.done(units)
        over = sum(unit.share == 1.0 for unit in units.values())
        self._bars.update(self._stage, completed=done, note=_of(over, total))
        if self._overall is not None and total:
            self._bars.update(self._overall, completed=self._ended + min(1.0, done / total))
        for name, unit in units.items():
            self._show_unit(name, unit)
        self._bars.refresh()

    def end(self, stage: str, line: str) -> None:
        for shown in (self._stage, *self._units.values()):
            if shown is not None:
                self._bars.remove_task(shown)
        self._stage, self._units = None, {}
        if stage in self._stages:  # a stage may show its work in several parts of other names
            self._ended = self._stages.index(stage) + 1
        if self._overall is not None:
            self._bars.update(self._overall, description=self._nth(), completed=self._ended)
        print_line(self._bars.console, line)

    def close(self) -> None:
        self._bars.stop()

    def _show_unit(self, name: str, unit: UnitProgress) -> None:
        if unit.share == 1.0:
            if name in self._units:
                self._bars.remove_task(self._units.pop(name))
            return
        if name not in self._units:
            self._units[name] = self._bars.add_task(f"  {name}", total=unit.total, note=unit.note, timed=True)
        self._bars.update(self._units[name], completed=unit.done, total=unit.total, note=unit.note)

    def _nth(self) -> str:
        return f"stage {min(self._ended + 1, len(self._stages))} of {len(self._stages)}"


class LineView:
    """A line when a stage begins, one when it ends, and one every `LINE_SECONDS` in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage, self._size = "", StageSize(0)
        self._printed_at = 0.0
        self._first: tuple[float, float] | None = None  # time of the first report, and the work done by then

    def open(self) -> None:
        pass

    def begin(self, stage: str, size: StageSize) -> None:
        self._stage, self._size, self._first = stage, size, None
        self._printed_at = time.monotonic()
        print_line(self._console, f"{stage}: begun, {_of(0, size.units)}")

    def show(self, units: Mapping[str, UnitProgress]) -> None:
        now, done = time.monotonic(), self._size.done(units)
        if units and self._first is None:
            self._first = now, done
        if now - self._printed_at < LINE_SECONDS:
            return
        self._printed_at = now
        running = [f"{name} {unit.done}/{unit.total} {unit.note}" for name, unit in units.items() if unit.share < 1.0]
        over = _of(len(units) - len(running), self._size.units)
        print_line(self._console, "; ".join([f"{self._stage}: {over}{self._left(now, done)}", *running]).rstrip())

    def end(self, stage: str, line: str) -> None:  # noqa: ARG002 - lines stay
        print_line(self._console, line)

    def close(self) -> None:
        pass

    def _left(self, now: float, done: float) -> str:
        if self._first is None or done <= self._first[1]:
            return ""
        began, before = self._first
        seconds = (self._size.units - done) * (now - began) / (done - before)
        return f", {timedelta(seconds=round(max(0.0, seconds)))} left"


class _TimeLeft(bars.TimeRemainingColumn):
    """No estimate for the bar of all stages: their durations do not follow from each other."""

    def render(self, task: bars.Task) -> Text:
        return super().render(task) if task.fields["timed"] else Text()


def _of(done: int, total: int) -> str:
    return f"{done} of {total}"


def print_line(console: Console, line: str) -> None:
    """Print a line without wrapping, markup or colours."""
    console.print(Text(line), soft_wrap=True)
