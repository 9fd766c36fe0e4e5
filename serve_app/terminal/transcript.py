"""Prints an answer as it arrives, with the text of accepted tokens marked: in colour, in brackets, or not at all."""

from __future__ import annotations

from typing import Literal

from rich.console import Console
from rich.style import Style

Marks = Literal["colour", "brackets", "none"]

ACCEPTED = Style(color="green", underline=True)
OPEN, CLOSE = "[", "]"
CONTROLS = dict.fromkeys(code for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t")


class Transcript:
    """One answer; `show` is an `OnChunk` of `openai.client`. `text` is what was shown, without marks."""

    def __init__(self, console: Console, marks: Marks) -> None:
        self.text = ""
        self._console = console
        self._marks = marks

    def show(self, text: str, accepted: int) -> None:
        """Print the text of one run, whose first `accepted` characters are of accepted tokens."""
        self.text += text
        self._write(marked(self._safe(text[:accepted]), self._marks) + self._safe(text[accepted:]))

    def end(self) -> None:
        self._write("\n")

    def _safe(self, text: str) -> str:
        """A terminal obeys control characters, so it gets none of the model's; a pipe gets the text as it is."""
        return text.translate(CONTROLS) if self._console.is_terminal else text

    def _write(self, text: str) -> None:
        try:  # not by rich's print, which expands tabs
            self._console.file.write(text)
            self._console.file.flush()
        except BrokenPipeError:  # whoever read it has gone
            self._console.on_broken_pipe()


def marks_on(console: Console, *, brackets: bool) -> Marks:
    """Colour where the console has any; elsewhere brackets, if they are wanted."""
    if console.color_system is not None and not console.no_color:
        return "colour"
    return "brackets" if brackets else "none"


def marked(text: str, marks: Marks) -> str:
    """`text` marked as accepted."""
    if not text or marks == "none":
        return text
    return ACCEPTED.render(text) if marks == "colour" else f"{OPEN}{text}{CLOSE}"
