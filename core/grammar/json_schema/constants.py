"""Values and names that a schema has itself: those that the engine would change are refused."""

from __future__ import annotations

from typing import Any

from core.grammar.json_schema.context import Context
from core.grammar.json_schema.number_bounds import is_exact
from core.grammar.json_schema.schema import MAX_DEPTH, Path, SchemaFault


def check_value(value: Any, path: Path, context: Context, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise SchemaFault(path, f"a value that no grammar can hold: values may be nested {MAX_DEPTH} deep")
    match value:
        case bool() | None:
            return
        case int() | float():
            if not is_exact(value):
                message = "a number has a value that no grammar can hold; it must be a float exactly, and below 2^63; "
                raise SchemaFault(path, message + "write it as a text")
        case str():
            checked_text(value, path, context)
        case list():
            for inner in value:
                check_value(inner, path, context, depth + 1)
        case dict():
            for name, inner in value.items():
                checked_text(name, path, context)
                check_value(inner, path, context, depth + 1)


def checked_text(text: str, path: Path, context: Context) -> str:
    """`text` itself."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise SchemaFault(path, "a text with half a surrogate pair is a value that no grammar can hold")
    if context.controls is None and any(_is_control(character) for character in text):
        context.controls = path
    return text


def _is_control(character: str) -> bool:
    return (character < " " and character not in "\b\t\n\f\r") or character == "\x7f"
