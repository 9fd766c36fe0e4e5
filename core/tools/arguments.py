"""The arguments of a call as models write them, and the JSON object that they stand for."""

from __future__ import annotations

import json
import re

_NO_ARGUMENTS = "{}"
_STRING_OR_COMMA = re.compile(r'("(?:[^"\\]++|\\.)*+")|,(?=[ \t\r\n]*[}\]])', re.DOTALL)  # a comma before a bracket
_CONTROL = re.compile(r"(\\.)|[\x00-\x1f]", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


def object_of(written: str) -> str | None:
    """The JSON of the object that `written` stands for; None if it stands for none.

    null and "" are the empty object, and a string has its JSON in it. Valid JSON stays as it was written. What no
    parser takes is mended where it can be read in one way: raw control characters in strings, and trailing commas.
    """
    text = mended(written)
    value = _value(text)
    if isinstance(value, str):
        text = mended(_SURROGATE.sub(_escaped, value.strip())) or _NO_ARGUMENTS
        value = _value(text)
    if value is None:
        return _NO_ARGUMENTS
    return text if isinstance(value, dict) else None


def mended(written: str) -> str:
    """The same text, without control characters in its strings and commas before closing brackets."""
    return _STRING_OR_COMMA.sub(lambda match: _CONTROL.sub(_without_control, match[1]) if match[1] else "", written)


def _without_control(match: re.Match[str]) -> str:
    return match[1] or _escaped(match)


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def _value(text: str) -> object:
    """What JSON says, numbers as their text; False if it is none."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=str, parse_int=str)
