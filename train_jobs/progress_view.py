"""The two ways a run is drawn: bars that move on a terminal, lines in a pipe.

Enters: the newest event of each unit of the stage at work. Leaves: what a person reads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from rich import progress as bars
from rich.console import Console
from rich.text import Text

LINE_SECONDS = 10.0  # between two lines of a stage in a pipe
SPEED_SECONDS = 300.0  # the time left is told by the speed of so many seconds


class Unit(NamedTuple):
    """How far a unit is, and what it says of itself."""

    done: int
    total: int
    note: str

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total > 0 else 1.0


class Plan(NamedTuple):
    """What a stage has before it: so many units; `work` is what their totals come to, where their sizes differ."""

    units: int
    work: int | None = None

    def done(self, units: Mapping[str, Unit]) -> float:
        """How many units' worth of the work is done."""
        if not self.work:
            return sum(unit.share for unit in units.values())
        return self.units * sum(unit.done for unit in units.values()) / self.work


class View(Protocol):
    """Draws one stage after the other."""

    def open(self) -> None: ...

    def begin(self, stage: str, plan: Plan) -> None: ...

    def show(self, units: Mapping[str, Unit]) -> None: ...

    def end(self, stage: str, line: str) -> None:
        """Take the stage away, if it is shown, and leave a line."""

    def close(self) -> None: ...


class Table:
    """A bar for `stages` if they are several, one for the stage, one for each unit at work."""

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
        self._plan = Plan(0)
        self._ended = 0  # of `stages`
        self._overall: bars.TaskID | None = None
        self._stage: bars.TaskID | None = None
        self._units: dict[str, bars.TaskID] = {}

    def open(self) -> None:
        if len(self._stages) > 1:
            self._overall = self._bars.add_task(self._nth(), total=len(self._stages), note="", timed=False)
        self._bars.start()

    def begin(self, stage: str, plan: Plan) -> None:
        self._plan = plan
        self._stage = self._bars.add_task(stage, total=plan.units, note=_of(0, plan.units), timed=True)
        self._bars.refresh()

    def show(self, units: Mapping[str, Unit]) -> None:
        assert self._stage is not None
        total, done = self._plan.units, self._plan.done(units)
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
        if stage in self._stages:  # else a stage shows its work in parts
            self._ended = self._stages.index(stage) + 1
        if self._overall is not None:
            self._bars.update(self._overall, description=self._nth(), completed=self._ended)
        leave(self._bars.console, line)

    def close(self) -> None:
        self._bars.stop()

    def _show_unit(self, name: str, unit: Unit) -> None:
        if unit.share == 1.0:
            if name in self._units:
                self._bars.remove_task(self._units.pop(name))
            return
        if name not in self._units:
            self._units[name] = self._bars.add_task(f"  {name}", total=unit.total, note=unit.note, timed=True)
        self._bars.update(self._units[name], completed=unit.done, total=unit.total, note=unit.note)

    def _nth(self) -> str:
        return f"stage {min(self._ended + 1, len(self._stages))} of {len(self._stages)}"


class Lines:
    """A line when a stage begins and one when it ends; in between one now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage, self._plan = "", Plan(0)
        self._said = 0.0
        self._first: tuple[float, float] | None = None  # when units were first heard of, and how much was done then

    def open(self) -> None:
        pass

    def begin(self, stage: str, plan: Plan) -> None:
        self._stage, self._plan, self._first = stage, plan, None
        self._said = time.monotonic()
        leave(self._console, f"{stage}: begun, {_of(0, plan.units)}")

    def show(self, units: Mapping[str, Unit]) -> None:
        now, done = time.monotonic(), self._plan.done(units)
        if units and self._first is None:
            self._first = now, done
        if now - self._said < LINE_SECONDS:
            return
        self._said = now
        at_work = [f"{name} {unit.done}/{unit.total} {unit.note}" for name, unit in units.items() if unit.share < 1.0]
        over = _of(len(units) - len(at_work), self._plan.units)
        leave(self._console, "; ".join([f"{self._stage}: {over}{self._left(now, done)}", *at_work]).rstrip())

    def end(self, stage: str, line: str) -> None:  # noqa: ARG002 - lines stay
        leave(self._console, line)

    def close(self) -> None:
        pass

    def _left(self, now: float, done: float) -> str:
        if self._first is None or done <= self._first[1]:
            return ""
        began, before = self._first
        seconds = (self._plan.units - done) * (now - began) / (done - before)
        return f", {timedelta(seconds=round(max(0.0, seconds)))} left"


class _TimeLeft(bars.TimeRemainingColumn):
    """Of stages no time is told: how long the next ones take does not follow from the former."""

    def render(self, task: bars.Task) -> Text:
        return super().render(task) if task.fields["timed"] else Text()


def _of(done: int, total: int) -> str:
    return f"{done} of {total}"


def leave(console: Console, line: str) -> None:
    """Print a line as it is: not wrapped, no markup, no colours."""
    console.print(Text(line), soft_wrap=True)
