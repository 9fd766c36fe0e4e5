"""What a command shows while something takes its time: a spinner with seconds, or a bar where the end is known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def stage(console: Console, doing: str, done: str = "") -> Iterator[None]:
    """Show `doing` with a running clock; when it is over, `done` and the seconds it took, if `done` is given.

    The spinner is for terminals only: in a pipe the lines that stay are all there is.
    """
    began = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(doing, total=None)
        yield
    if done:
        console.print(f"{done} [dim]in {time.monotonic() - began:.1f} s[/dim]", highlight=False)


class Bar:
    """Moves one step at a time, and says what is being done."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def say(self, doing: str) -> None:
        self._progress.update(self._task, description=doing)

    def advance(self) -> None:
        self._progress.advance(self._task)


@contextmanager
def bar(console: Console, total: int) -> Iterator[Bar]:
    """A bar over so many steps, for terminals only; it leaves no line."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, total)
