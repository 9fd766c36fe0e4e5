"""What the engine says of a grammar, in words of this service: its own name its options and states."""

from __future__ import annotations

import re

_SAID = 200  # characters of a complaint, which may quote the whole grammar
_TOO_MUCH = "it allows too much at one place, or its texts never end; name fewer optional properties or choices"
_TOO_COMPLEX = "its patterns, lengths and multiples are too complex; write shorter patterns and smaller bounds"
_UNKNOWN = "no grammar can hold it; write it simpler"
_NOTHING = "nothing is valid here; its parts contradict each other"
_IN_OUR_WORDS = {
    r"NoExtension": "nothing is valid here, or no text that ends; give it a text that ends",
    r"Too many items|Current row has|too many rules|ParserTooComplex": _TOO_MUCH,
    r"lexer error: |LexerTooComplex|too many (expressions|states)|fuel": _TOO_COMPLEX,
    r"Unable to determine|can't determine": _TOO_COMPLEX,
    r"Unsatisfiable schema|Regex is empty": _NOTHING,
    r"lookarounds not supported.*(Start|StartLF)": "'^' may stand only where a text begins",
    r"lookarounds not supported.*(End|EndLF)": "'$' may stand only where a text ends",
    r"lookarounds not supported": "word boundaries and look-around are not supported; write what the text is",
    r"look-around": "look-ahead and look-behind are not supported; write what the text is",
    r"backreferences": "back-references are not supported; write the text out",
    r"circular references": "a reference to a schema around it may have no other keywords beside it; leave them out",
    r"patternProperty regexes .* are not disjoint": "two names in 'patternProperties' match one name; let them differ",
    r"min/maxProperties": "'minProperties' and 'maxProperties' cannot be enforced here; write 'required' instead",
    r"recursion limit|stack level|schema too large|too deep": "it is nested too deeply, or too large; write it simpler",
    r"max_tokens=|stop=": "rules with attributes such as max_tokens or stop are not supported here",
}


def in_our_words(complaint: str) -> str:
    """The same complaint, without notions of the engine; empty if there is none."""
    unreadable = re.search(r"^ *error: (.+)$", complaint, re.MULTILINE)
    otherwise = f"a pattern cannot be read: {unreadable[1]:.{_SAID}}" if unreadable else _UNKNOWN
    return _known(complaint) or (otherwise if complaint.strip() else "")


def of_text(complaint: str) -> str:
    """A complaint about what a client wrote in the engine's own language, which may stay as it is."""
    return _known(complaint) or _first_line(complaint)


def _known(complaint: str) -> str:
    return next((words for pattern, words in _IN_OUR_WORDS.items() if re.search(pattern, complaint)), "")


def _first_line(complaint: str) -> str:
    """What is wrong, without the picture of where."""
    lines = [line.strip() for line in complaint.replace("<non-verbose/>", "").splitlines() if line.strip()]
    errors = (line.removeprefix("error: ") for line in lines if line.startswith("error: "))
    return next(errors, lines[0] if lines else "")[:_SAID]
