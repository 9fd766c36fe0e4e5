"""Reads a text that arrives character by character, in steps that each wait for the next one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import TypeVar

from core.tools.markers import MARKS

Result = TypeVar("Result")
Steps = Generator[None, None, Result]  # a parse that waits for another character at every step

SPACES = frozenset(" \t\r\n")
_CLOSING = {"{": "}", "[": "]"}


class CharacterReader:
    """The next character, and those that are pending: read, while it is not certain yet what they are.

    A subclass sets `_steps`, which read one text. `_following` is what would have come behind the end, as far as
    anybody knows; `_in_marker` says whether the end came within a marker, which that could have gone on with.
    """

    def __init__(self) -> None:
        self.char = ""  # the next character, "" at the end
        self.pending: list[str] = []
        self._steps: Steps[None]
        self._again: list[str] = []  # characters to read before any others, last first
        self._following = ""
        self._in_marker = False

    def _feed(self, text: str) -> None:
        for self.char in text:
            next(self._steps)

    def _end(self) -> None:
        self.char = ""
        next(self._steps, None)

    def advance(self) -> Steps[None]:
        """Go to the next character; this one is dropped, unless it was noted."""
        if self._again:
            self.char = self._again.pop()
        else:
            yield

    def hold(self) -> Steps[None]:
        """Add the character to those that are pending."""
        self.pending.append(self.char)
        yield from self.advance()

    def spaces(self, others: str = "") -> Steps[None]:
        """Hold spaces, and any of the `others`."""
        while self.char and (self.char in SPACES or self.char in others):
            yield from self.hold()

    def _rewind(self) -> None:
        """Go back to the beginning of what is pending."""
        self._again += [self.char, *reversed(self.pending)]
        self.char = self._again.pop()
        self.pending.clear()

    def begins(self, marker: str) -> bool:
        """Whether the marker may come next."""
        return self.char in (marker[0], MARKS[marker])

    def read(self, *markers: str) -> Steps[str | None]:
        """Hold the one of `markers` that comes next, as text or as its mark, or else what it has in common with one."""
        for marker in markers:
            if self.char == MARKS.get(marker):
                yield from self.hold()
                return marker
        length, candidates = 0, markers
        while remaining := tuple(marker for marker in candidates if self.char == marker[length]):
            yield from self.hold()
            length, candidates = length + 1, remaining
            if length == len(candidates[0]):
                return candidates[0]
        at_end = length > 0 and not self.char
        self._in_marker = at_end and any(_may_follow(self._following, marker[length:]) for marker in candidates)
        return None

    def quoted(self, options: Collection[str]) -> Steps[str | None]:
        """One of `options` in quotes, without escapes."""
        if self.char != '"':
            return None
        yield from self.hold()
        word = yield from self.word(options)
        if self.char != '"' or word not in options:
            return None
        yield from self.hold()
        return word

    def word(self, options: Collection[str]) -> Steps[str]:
        """What comes next as far as one of `options` begins with it."""
        word = ""
        while self.char and any(option.startswith(word + self.char) for option in options):
            word += self.char
            yield from self.hold()
        return word

    def any_string(self) -> Steps[bool]:
        """Hold a string in quotes; False if there is none, or no end of it."""
        if self.char != '"':
            return False
        escaped = True  # the first quote does not end it
        while self.char:
            ends = self.char == '"' and not escaped
            escaped = self.char == "\\" and not escaped
            yield from self.hold()
            if ends:
                return True
        return False

    def brackets(self, take: Callable[[str], None], closing: str = "") -> Steps[bool]:
        """Give `take` all up to the bracket that closes the first, or the one that is open and has `closing`.

        False if brackets do not match, or if the text ends before.
        """
        quoted = escaped = False
        while char := self.char:
            if quoted:
                quoted = escaped or char != '"'
                escaped = char == "\\" and not escaped
            elif char in _CLOSING:
                closing += _CLOSING[char]
            elif char in "}]":
                if not closing.endswith(char):
                    return False
                closing = closing[:-1]
            else:
                quoted = char == '"'
            take(char)
            yield from self.advance()
            if not closing:
                return True
        return False


def _may_follow(following: str, rest: str) -> bool:
    """Whether a text whose beginning is `following` may go on with `rest`."""
    return rest.startswith(following) or following.startswith(rest)
