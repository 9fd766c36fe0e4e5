"""Patterns of JSON schemas, which are JavaScript's regular expressions, in the syntax and sense of the engine's.

What they allow is valid wherever it is checked: a class that JavaScript and Python read differently (`.`, `\\s`, `\\D`,
...) allows what both do. Ranges of the engine's own syntax (`&&`, nested classes) are text here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_REPEATED = 20_000

_DIGITS, _WORDS, _SPACES = "0-9", "0-9A-Za-z_", r" \t\n\r\f\v"
_ALL_DIGITS, _ALL_WORDS, _ALL_SPACES = r"\p{Nd}", r"\p{L}\p{N}_", r"\s\x1c-\x1f\x{feff}"


class _Set(NamedTuple):
    """The members of an escaped set that it has everywhere, and those that it has anywhere."""

    everywhere: str
    anywhere: str


_SETS = {
    "d": _Set(_DIGITS, _ALL_DIGITS),
    "w": _Set(_WORDS, _ALL_WORDS),
    "s": _Set(_SPACES, _ALL_SPACES),
    "D": _Set(f"[^{_ALL_DIGITS}]", f"[^{_DIGITS}]"),
    "W": _Set(f"[^{_ALL_WORDS}]", f"[^{_WORDS}]"),
    "S": _Set(f"[^{_ALL_SPACES}]", f"[^{_SPACES}]"),
}
_DOT = r"[^\n\r\x{2028}\x{2029}]"
_BACK_REFERENCE = "back-references are not supported; write the text out"
_UNSUPPORTED = {
    "b": "'\\b' is not supported; write the characters that may stand around the word",
    "B": "'\\B' is not supported; write the characters that may stand there",
    "k": _BACK_REFERENCE,
    "A": "'\\A' is not supported; write '^'",
    "Z": "'\\Z' is not supported; write '$'",
    "z": "'\\z' is not supported; write '$'",
    **dict.fromkeys("123456789", _BACK_REFERENCE),
}
_LOOK_AROUND = re.compile(r"\(\?(=|!|<=|<!)")
_QUANTIFIER = re.compile(r"\{\d+(,\d*)?\}")
_LOW_SURROGATE = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_REPEATED = re.compile(r"\\.|\[(\\.|[^\]\\])*\]|\{(?P<count>\d+)(,\d*)?\}|[^?]", re.DOTALL)
_CODE = re.compile(r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,6}\}")
_PROPERTY = re.compile(r"[pP]\{[^{}]*\}")
_SET = re.compile("[dwsDWS]")
_SYNTAX = r"\^$.|?*+()[]{}-&~#"
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


def engine_pattern(pattern: str) -> str:
    """The pattern for the engine; raises `ValueError` for what it cannot hold."""
    check_repetition(pattern)
    return "".join(_Reader(pattern).parts())


def check_repetition(pattern: str) -> None:
    """Refuse with `ValueError` what must be repeated so often that the engine is busy for seconds."""
    greatest = [1]  # number so far, of each group around
    before = 1
    for part in _REPEATED.finditer(pattern):
        match part[0][0]:
            case "(":
                greatest.append(1)
            case ")":
                before = greatest.pop() if len(greatest) > 1 else 1
                greatest[-1] = max(greatest[-1], before)
            case "{" if part["count"]:
                before *= int(part["count"])
                greatest[-1] = max(greatest[-1], before)
                if before > MAX_REPEATED:
                    raise ValueError(f"it repeats something {before} times; {MAX_REPEATED} is the most")
            case _:
                before = 1


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def parts(self) -> list[str]:
        parts: list[str] = []
        while self._at < len(self._pattern):
            parts.append(self._part())
        return parts

    def _part(self) -> str:
        if _LOOK_AROUND.match(self._pattern, self._at):
            raise ValueError("look-ahead and look-behind are not supported; write what the text is")
        if quantifier := self._accept(_QUANTIFIER):
            return quantifier + self._laziness()
        character = self._next()
        match character:
            case "\\":
                return self._escape()
            case "[":
                return self._class()
            case ".":
                return _DOT
            case "{" if self._pattern.startswith(",", self._at):
                raise ValueError("'{,n}' is read differently everywhere; write '{0,n}'")
            case "{" | "}" | "]":
                return f"\\{character}"
            case "*" | "+" | "?":
                return character + self._laziness()
        return character

    def _accept(self, expression: re.Pattern[str]) -> str:
        """What matches here, if anything does; it has been read then."""
        match = expression.match(self._pattern, self._at)
        self._at = match.end() if match else self._at
        return match[0] if match else ""

    def _laziness(self) -> str:
        """What follows a quantifier; a lazy one matches the same whole texts."""
        if self._pattern.startswith("+", self._at):
            raise ValueError("possessive quantifiers are not supported; leave out the second '+'")
        return self._next() if self._pattern.startswith("?", self._at) else ""

    def _next(self) -> str:
        if self._at == len(self._pattern):
            raise ValueError("the pattern ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def _escape(self) -> str:
        if category := self._accept(_PROPERTY):
            return f"\\{category}"
        if letter := self._accept(_SET):
            members = _SETS[letter].everywhere
            return members if members.startswith("[") else f"[{members}]"
        letter = self._pattern[self._at : self._at + 1]
        if letter in _UNSUPPORTED:
            raise ValueError(_UNSUPPORTED[letter])
        return _literal(self._character())

    def _character(self) -> str:
        """The character behind a backslash."""
        if code := self._accept(_CODE):
            return self._of_code(int(code[1:].strip("{}"), 16))
        letter = self._next()
        if letter == "c" and self._pattern[self._at : self._at + 1].isalpha():
            return chr(ord(self._next().upper()) % 32)
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.isascii() and letter.isalnum():
            raise ValueError(f"'\\{letter}' is not known; write '{letter}'")
        return letter

    def _of_code(self, code: int) -> str:
        if 0xD800 <= code < 0xDC00 and (low := self._accept(_LOW_SURROGATE)):
            code = 0x10000 + ((code - 0xD800) << 10) + int(low.removeprefix("\\u"), 16) - 0xDC00
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise ValueError(f"\\u{code:x} is no character")
        return chr(code)

    def _class(self) -> str:
        negated = self._pattern.startswith("^", self._at)
        self._at += negated
        if self._pattern.startswith("]", self._at):
            raise ValueError("an empty class '[]' is read differently everywhere; write '\\]' for a bracket in a class")
        members: list[str] = []
        while (member := self._member(negated)) is not None:
            members.append(member)
        return "[" + "^" * negated + "".join(members) + "]"

    def _member(self, negated: bool) -> str | None:
        """A character, a range or a set in a class; None at its end."""
        character = self._next()
        if character == "]":
            return None
        if character == "\\":
            if letter := self._accept(_SET):
                return _SETS[letter].anywhere if negated else _SETS[letter].everywhere
            if category := self._accept(_PROPERTY):
                return f"\\{category}"
            character = self._in_class()
        following = self._pattern[self._at : self._at + 2]
        if not (len(following) == 2 and following[0] == "-" and following[1] != "]"):
            return _literal(character)
        self._at += 1
        last = self._next()
        if last == "\\" and self._pattern[self._at : self._at + 1] in {*_SETS, "p", "P"}:
            self._at -= 1
            return _literal(character) + _literal("-")
        last = self._in_class() if last == "\\" else last
        return f"{_literal(character)}-{_literal(last)}"

    def _in_class(self) -> str:
        if self._pattern.startswith("b", self._at):
            self._at += 1
            return "\b"
        return self._character()


def _literal(character: str) -> str:
    """The character itself, in a class or outside."""
    if character in _SYNTAX:
        return f"\\{character}"
    return character if character.isprintable() else f"\\x{{{ord(character):x}}}"
