"""The keywords of strings: lengths, patterns and formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core.grammar.json_schema.context import Context, Part
from core.grammar.json_schema.patterns import engine_pattern
from core.grammar.json_schema.schema import Path, Rewritten, Schema, SchemaFault

_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"))
_YEAR = "(...[1-9]|..[1-9].|.[1-9]..|[1-9]...)"  # but for 0000
_LEAP_YEAR = "(..(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DAY = f"({_YEAR}-(0[13-9]-..|1.-..|02-[01].|02-2[0-8])|{_LEAP_YEAR}-02-29)"
_BEYOND_THE_ENGINE: dict[str, Schema] = {  # which allows 29 February and second 60 in any year and minute
    "date": {"pattern": f"^{_DAY}$"},
    "time": {"pattern": "^.{6}[0-5].*$"},
    "date-time": {"pattern": f"^{_DAY}.{{7}}[0-5].*$"},
    "hostname": {"maxLength": 253},
}


def restrictions(part: Part, context: Context) -> Iterator[Rewritten]:
    """What further schemas a string must be valid against; `part.rewritten` gets the keywords that it can hold."""
    low, high, counts = part.counts("minLength", "maxLength")
    part.rewritten.update(counts)
    if low > high:
        yield context.impossible(f"no text has {low} characters at least and {high} at most", part.path)
    if "pattern" in part.keywords:
        part.rewritten["pattern"] = pattern(part.keywords["pattern"], "'pattern'", part.path, context)
    if "format" in part.keywords:
        yield from _format(part.keywords["format"], part, context)


def _format(name: Any, part: Part, context: Context) -> Iterator[Rewritten]:
    if not isinstance(name, str):
        raise SchemaFault(part.path, "'format' must be a text")
    if name in _FORMATS:
        part.rewritten["format"] = name
        if name in _BEYOND_THE_ENGINE:
            yield context.noted({"type": ["string"], **_BEYOND_THE_ENGINE[name]}, part.path)
    else:
        names = ", ".join(sorted(_FORMATS))
        message = f"the format '{name:.40}' cannot be enforced; write one of {names}, or a 'pattern'"
        context.refuse_if_strict(part.path, message)


def pattern(expression: Any, noun: str, path: Path, context: Context) -> str:
    """A pattern for the engine; `noun` is what the schema has it for."""
    if not isinstance(expression, str):
        raise SchemaFault(path, f"{noun} must be a text")
    try:
        return engine_pattern(context.checked_text(expression, path))
    except ValueError as error:
        raise SchemaFault(path, f"{noun} '{expression:.60}': {error}") from error
