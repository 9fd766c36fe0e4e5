"""Transcripts: accepted text is marked as the console allows, and nothing else of the text changes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from serve_app.terminal.transcript import Marks, Transcript, marks_on

RUNS = [("小华买了 17", 0), (" apples:\t", 4), ("\N{PILE OF POO}(b)[i]x[/i]\r\n", 1), ("", 0), ("end", 3)]
TEXT = "".join(text for text, _ in RUNS)


def console(*, terminal: bool = False, no_color: bool = False) -> Console:
    color_system = "standard" if terminal else None
    return Console(file=io.StringIO(), force_terminal=terminal, color_system=color_system, no_color=no_color, width=10)  # type: ignore[arg-type]


def shown(on: Console, marks: Marks, runs: list[tuple[str, int]]) -> str:
    transcript = Transcript(on, marks)
    for run in runs:
        transcript.show(*run)
    transcript.end()
    assert transcript.text == "".join(text for text, _ in runs)
    return on.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("marks", "begun", "ended"), [("colour", "\x1b[4;32m", "\x1b[0m"), ("brackets", "[", "]"), ("none", "", "")]
)
def test_the_first_characters_of_a_run_are_marked_and_the_text_stays(marks: Marks, begun: str, ended: str) -> None:
    marked = "".join(f"{begun}{text[:at]}{ended}{text[at:]}" if at else text for text, at in RUNS)
    assert shown(console(), marks, RUNS) == marked + "\n"


def test_a_terminal_gets_no_control_characters_of_the_model() -> None:
    runs = [("a\x1b]0;title\x07b\n\tc", 2), ("\x9b2Jd\r", 0)]
    assert shown(console(terminal=True), "none", runs) == "a]0;titleb\n\tc2Jd\n"


def test_marks_are_colour_where_there_is_any_and_brackets_only_on_demand() -> None:
    assert marks_on(console(terminal=True), brackets=True) == "colour"
    for plain in (console(), console(terminal=True, no_color=True)):
        assert marks_on(plain, brackets=False) == "none"
        assert marks_on(plain, brackets=True) == "brackets"
