"""A schema that is rewritten for the engine, the values that schemas list, and what is wrong with a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Path = tuple[str | int, ...]
Schema = dict[str, Any]
Rewritten = bool | Schema
"""Here `type` is a list, bounds are inclusive, and references lead to `$defs`."""

TYPES = ("null", "boolean", "number", "string", "array", "object")
MAX_DEPTH = 48  # schemas, or lists and objects, within each other; the engine reads JSON that is 128 deep
_DEFINITIONS = "#/$defs/"


def reference_to(name: str) -> str:
    """The `$ref` that means a definition."""
    return f"{_DEFINITIONS}{name}"


def referred(schema: Mapping[str, Any]) -> str | None:
    """The name of the definition that a schema refers to, if to any."""
    return str(schema["$ref"]).removeprefix(_DEFINITIONS) if "$ref" in schema else None


def values_of(schema: Mapping[str, Any]) -> list[Any] | None:
    """The values that `const` or `enum` lists; None without them."""
    if "const" in schema:
        return [schema["const"]]
    return schema.get("enum")


def type_of(value: Any) -> str:
    """Its type in JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def key_of(value: Any) -> str:
    """Equal for values that are equal in JSON, as 1 and 1.0 are, and True and 1 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return "[" + ",".join(map(key_of, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{json.dumps(name)}:{key_of(inner)}" for name, inner in value.items())) + "}"
    return json.dumps(value)


class SchemaFault(Exception):
    """A schema that cannot be used; `path` leads to the part at fault, and `complaint` says what to write instead."""

    def __init__(self, path: Path, complaint: str) -> None:
        super().__init__(complaint)
        self.path = path
        self.complaint = complaint


def written(path: Path) -> str:
    """The path as it follows the name of a field: `.properties.a.anyOf[1]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
