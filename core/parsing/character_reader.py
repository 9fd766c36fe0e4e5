"""Reads a text that arrives character by character, in steps that each wait for the next one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import TypeVar

from core.parsing.marks import MARKS

Result = TypeVar("Result")
Steps = Generator[None, None, Result]  # a parse that waits for another character at every step

SPACES = frozenset(" \t\r\n")
_CLOSING = {"{": "}", "[": "]"}


class CharacterReader:
    """The next character, and those that were read while it is not certain yet what they are.

    `_following` is what would have come behind the end, as far as anybody knows; `_begun` says whether the end came
    within a marker, which that could have gone on with.
    """

    def __init__(self) -> None:
        self._char = ""  # the next character, "" at the end
        self._held: list[str] = []
        self._again: list[str] = []  # characters to read before any others, last first
        self._following = ""
        self._begun = False

    def _next(self) -> Steps[None]:
        if self._again:
            self._char = self._again.pop()
        else:
            yield

    def _hold(self) -> Steps[None]:
        self._held.append(self._char)
        yield from self._next()

    def _spaces(self, others: str = "") -> Steps[None]:
        """Hold spaces, and any of the `others`."""
        while self._char and (self._char in SPACES or self._char in others):
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
        length, fitting = 0, markers
        while going_on := tuple(marker for marker in fitting if self._char == marker[length]):
            yield from self._hold()
            length, fitting = length + 1, going_on
            if length == len(fitting[0]):
                return fitting[0]
        at_end = length > 0 and not self._char
        self._begun = at_end and any(_may_follow(self._following, marker[length:]) for marker in fitting)
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
        """Hold a string in quotes; False if there is none, or no end of it."""
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

    def _brackets(self, take: Callable[[str], None], closing: str = "") -> Steps[bool]:
        """Give `take` all up to the bracket that closes the first, or the one that is open and has `closing`.

        False if brackets do not match, or if the text ends before.
        """
        quoted = escaped = False
        while char := self._char:
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
            yield from self._next()
            if not closing:
                return True
        return False


def _may_follow(following: str, rest: str) -> bool:
    """Whether a text whose beginning is `following` may go on with `rest`."""
    return rest.startswith(following) or following.startswith(rest)
