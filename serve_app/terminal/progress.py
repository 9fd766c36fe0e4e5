"""Progress of a command: its steps, each a spinner in a terminal and lines in a pipe, and a bar over many requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_EVERY = 3.0  # seconds between two lines about one step, where there is no terminal


class Step:
    """A step that is under way."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.done = 0
        self._progress = progress
        self._task = task

    def reach(self, done: int) -> None:
        """Show that `done` of the total are done; called as often as one likes."""
        self.done = done
        self._progress.update(self._task, completed=done)


@contextmanager
def step(console: Console, doing: str, done: str = "", total: int = 0) -> Iterator[Step]:
    """Show `doing` while the block runs, then `done`, if given, and the seconds it took.

    A terminal shows a spinner, a clock and, of a step with a `total`, how much is done. A pipe gets a line at once and
    one every few seconds.
    """
    began = time.monotonic()
    counted = (MofNCompleteColumn(),) if total else ()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *counted, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        under_way = Step(progress, progress.add_task(doing, total=total or None))
        with nullcontext() if console.is_terminal else _lines(console, doing, under_way, total):
            yield under_way
    if done:
        console.print(f"{done} [dim]in {time.monotonic() - began:.1f} s[/dim]", highlight=False)


@contextmanager
def _lines(console: Console, doing: str, under_way: Step, total: int) -> Iterator[None]:
    """Print a line when the block begins, and one every few seconds until it ends."""
    began, ended = time.monotonic(), threading.Event()

    def go_on() -> None:
        while not ended.wait(LINE_EVERY):
            done = f"{under_way.done} of {total} " if total else ""
            console.print(f"  {done}after {time.monotonic() - began:.0f} s", highlight=False)

    console.print(f"{doing} ...", highlight=False)
    lines = threading.Thread(target=go_on, daemon=True)
    lines.start()
    try:
        yield
    finally:
        ended.set()
        lines.join()


class Bar:
    """Moves one request at a time under a label."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def label(self, doing: str) -> None:
        self._progress.update(self._task, description=doing)

    def advance(self) -> None:
        self._progress.advance(self._task)


@contextmanager
def bar(console: Console, total: int) -> Iterator[Bar]:
    """A bar over `total` requests, in terminals only; it leaves no line."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, total)
