"""Reads a text that arrives character by character, in steps that each wait for the next one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import TypeVar

from core.parsing.marks import MARKS

Result = TypeVar("Result")
Steps = Generator[None, None, Result]  # a parse that waits for another character at every step

SPACES = frozenset(" \t\r\n")


class CharacterReader:
    """The next character, and those that were read while it is not certain yet what they are."""

    def __init__(self) -> None:
        self._char = ""  # the next character, "" at the end
        self._held: list[str] = []
        self._again: list[str] = []  # characters to read before any others, last first

    def _next(self) -> Steps[None]:
        if self._again:
            self._char = self._again.pop()
        else:
            yield

    def _hold(self) -> Steps[None]:
        self._held.append(self._char)
        yield from self._next()

    def _spaces(self) -> Steps[None]:
        while self._char in SPACES:
            yield from self._hold()

    def _read_again(self) -> None:
        """Go back to the beginning of what is held."""
        self._again += [self._char, *reversed(self._held)]
        self._char = self._again.pop()
        self._held.clear()

    def _begins(self, marker: str) -> bool:
        return self._char in (marker[0], MARKS[marker])

    def _read(self, *markers: str) -> Steps[str | None]:
        """Hold the one of `markers` that comes next, as text or as its mark, or else what it has in common with one."""
        for marker in markers:
            if self._char == MARKS.get(marker):
                yield from self._hold()
                return marker
        length = 0
        while markers := tuple(marker for marker in markers if self._char == marker[length]):
            yield from self._hold()
            length += 1
            if length == len(markers[0]):
                return markers[0]
        return None

    def _string(self, options: Collection[str]) -> Steps[str | None]:
        """One of `options` in quotes, without escapes."""
        if self._char != '"':
            return None
        yield from self._hold()
        word = yield from self._word(options)
        if self._char != '"' or word not in options:
            return None
        yield from self._hold()
        return word

    def _word(self, options: Collection[str]) -> Steps[str]:
        """What comes next as far as one of `options` begins with it."""
        word = ""
        while self._char and any(option.startswith(word + self._char) for option in options):
            word += self._char
            yield from self._hold()
        return word

    def _any_string(self) -> Steps[bool]:
        if self._char != '"':
            return False
        escaped = True  # the first quote does not end it
        while self._char:
            ends = self._char == '"' and not escaped
            escaped = self._char == "\\" and not escaped
            yield from self._hold()
            if ends:
                return True
        return False

    def _braces(self, take: Callable[[str], None], depth: int = 0) -> Steps[None]:
        """Give `take` all up to the brace that closes the first, or the `depth` that are open."""
        quoted = escaped = False
        while self._char:
            char = self._char
            take(char)
            if quoted:
                quoted = escaped or char != '"'
                escaped = char == "\\" and not escaped
            else:
                quoted = char == '"'
                depth += (char == "{") - (char == "}")
            yield from self._next()
            if depth == 0:
                return
