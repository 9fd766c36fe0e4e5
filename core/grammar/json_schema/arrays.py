"""The keywords of arrays: items, how many, and that they differ.

A grammar cannot remember which items were written. So lists whose items differ are all arrangements of a few values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

from core.grammar.json_schema.context import Context, Part
from core.grammar.json_schema.schema import Rewritten, Schema, SchemaFault, key_of, referred, type_of, values_of

MAX_ARRANGEMENTS = 120  # of five values, or of eleven in pairs; the engine follows all of them at once


def restrictions(part: Part, context: Context) -> Iterator[Rewritten]:
    """What further schemas an array must be valid against; `part.rewritten` gets the keywords that it can hold."""
    keywords, path, rewritten = part.keywords, part.path, part.rewritten
    low, high, counts = part.counts("minItems", "maxItems")
    rewritten.update(counts)
    if low > high:
        yield context.impossible(f"no list has {low} items at least and {high} at most", path)
    in_turn = "items" if isinstance(keywords.get("items"), list) else "" if context.old_draft else "prefixItems"
    rest = "additionalItems" if in_turn == "items" else "items"
    if in_turn in keywords:
        rewritten["prefixItems"] = context.inner_list(part, in_turn)
    if rest in keywords:
        rewritten["items"] = context.inner(part, rest)
    if not isinstance(unique := keywords.get("uniqueItems", False), bool):
        raise SchemaFault(path, "'uniqueItems' must be true or false")
    if unique and high > 1:
        items = True if "prefixItems" in rewritten else rewritten.get("items", True)
        arranged: Schema = {"items": items, "minItems": low, "maxItems": high}
        context.unique_lists.append((arranged, path))
        yield context.noted(arranged, path)


def listed_values(schema: Rewritten, definitions: Mapping[str, Rewritten]) -> list[Any] | None:
    """All values of a rewritten schema, each once; None if it does not list them. `definitions` are for references."""
    visited: set[int] = set()
    while isinstance(schema, dict) and "$ref" in schema and len(schema) == 1 and id(schema) not in visited:
        visited.add(id(schema))
        schema = definitions[referred(schema) or ""]
    if isinstance(schema, bool):
        return None
    if set(schema) <= {"const", "enum", "type"} and (values := values_of(schema)) is not None:
        return _distinct([value for value in values if _is_typed(value, schema)])
    if schema.get("type") == ["boolean"] and len(schema) == 1:
        return [True, False]
    if schema.get("type") == ["null"] and len(schema) == 1:
        return [None]
    if set(schema) == {"anyOf"}:
        options = [listed_values(option, definitions) for option in schema["anyOf"]]
        return None if None in options else _distinct([value for option in options for value in option or ()])
    return None


def arrangements(values: Sequence[Any], low: int, high: int | None) -> list[dict[str, Any]] | None:
    """Lists of different values, from `low` to `high` of them, as schemas; None if they are too many.

    A list may end anywhere behind the items it must have, so the longest ones hold the shorter, too.
    """
    length = min(len(values), len(values) if high is None else high)
    if length < low:
        return []
    if math.perm(len(values), length) > MAX_ARRANGEMENTS:
        return None
    return [
        {
            "type": ["array"],
            "prefixItems": [{"const": value} for value in arranged],
            "items": False,
            "minItems": low,
            "maxItems": length,
        }
        for arranged in permutations(values, length)
    ]


def _is_typed(value: Any, schema: dict[str, Any]) -> bool:
    kind = type_of(value)
    whole = kind == "number" and float(value).is_integer()
    return "type" not in schema or kind in schema["type"] or (whole and "integer" in schema["type"])


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({key_of(value): value for value in values}.values())
