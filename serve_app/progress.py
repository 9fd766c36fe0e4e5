"""What a command shows while something takes its time: a spinner with seconds, then one line that stays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


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
