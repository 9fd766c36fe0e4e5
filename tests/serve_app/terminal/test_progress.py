"""Progress of a step: in a pipe a line from its beginning on; in a terminal only the last line stays."""

from __future__ import annotations

import io
import re
import threading
from typing import Any

import pytest
from rich.console import Console

from serve_app.terminal import progress
from serve_app.terminal.progress import step


class Told(Console):
    """Says when two lines after the first are printed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.told = threading.Event()

    def print(self, *line: Any, **options: Any) -> None:
        super().print(*line, **options)
        if self.file.getvalue().count("after") >= 2:  # type: ignore[attr-defined]
            self.told.set()


def printed(*, terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with step(console, "Loading", "Loaded", total=3) as loading:
        begun: str = console.file.getvalue()  # type: ignore[attr-defined]
        assert (begun == "Loading ...\n") == (not terminal)
        for done in range(1, 4):
            loading.reach(done)
    shown: str = console.file.getvalue()  # type: ignore[attr-defined]
    return shown


def test_a_pipe_gets_a_line_when_a_step_begins_and_when_it_ends() -> None:
    first, last = printed(terminal=False).splitlines()
    assert first == "Loading ..."
    assert re.match(r"Loaded in \d+\.\d", last)


@pytest.mark.parametrize(("total", "line"), [(3, "  2 of 3 after 0 s"), (0, "  after 0 s")])
def test_a_pipe_gets_a_line_now_and_then_while_a_step_lasts(
    monkeypatch: pytest.MonkeyPatch, total: int, line: str
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.01)
    console = Told(file=io.StringIO(), width=80)
    with step(console, "Loading", total=total) as loading:
        loading.reach(2)
        assert console.told.wait(timeout=30)
    assert line in console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_terminal_counts_in_place() -> None:
    assert "Loading ..." not in printed(terminal=True)


def test_a_step_that_fails_is_not_said_to_be_done() -> None:
    console = Console(file=io.StringIO())
    with pytest.raises(ZeroDivisionError), step(console, "Loading", "Loaded"):
        raise ZeroDivisionError
    assert console.file.getvalue() == "Loading ...\n"  # type: ignore[attr-defined]
