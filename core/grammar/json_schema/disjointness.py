"""Proofs that no value is valid for two schemas, so that 'one of' both means 'any of' them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from core.grammar.json_schema.schema import TYPES, Rewritten, Schema, key_of, referred, type_of, values_of

_DEPTH = 12
_MAX_PAIRS = 20_000  # pairs; then it is not proven


class Disjointness:
    """Compares schemas whose references are in `definitions`."""

    def __init__(self, definitions: Mapping[str, Rewritten]) -> None:
        self._definitions = definitions
        self._budget = _MAX_PAIRS

    def of_all(self, schemas: Sequence[Rewritten]) -> bool:
        """Whether no two of them have a value in common."""
        return self._tagged(schemas) or all(self._of(*pair, 0) for pair in combinations(schemas, 2))

    def _tagged(self, schemas: Sequence[Rewritten]) -> bool:
        """Whether all are objects with one required property of which each has values of its own."""
        tags = [self._tags(schema) for schema in schemas]
        for name in tags[0] if tags else ():
            values = [value for tag in tags for value in tag.get(name, ())]
            if all(name in tag for tag in tags) and len(values) == len(set(values)):
                return True
        return False

    def _tags(self, schema: Rewritten) -> dict[str, set[str]]:
        """The values of the required properties of an object that list them."""
        parts = [part for part in self._parts(schema, 0) if isinstance(part, dict)]
        if not any(part.get("type") == ["object"] for part in parts):
            return {}
        required = {name for part in parts for name in part.get("required", ())}
        return {
            name: set(map(key_of, values))
            for part in parts
            for name, inner in part.get("properties", {}).items()
            if name in required and isinstance(inner, dict) and (values := values_of(inner)) is not None
        }

    def _of(self, a: Rewritten, b: Rewritten, depth: int) -> bool:
        self._budget -= 1
        if depth > _DEPTH or self._budget < 0:
            return False
        all_of_a, all_of_b = list(self._parts(a, depth)), list(self._parts(b, depth))
        if False in all_of_a or False in all_of_b:
            return True
        parts_a, parts_b = ([part for part in parts if isinstance(part, dict)] for parts in (all_of_a, all_of_b))
        return (
            any(_differ(*pair) for pair in product(parts_a, parts_b))
            or self._some_member(parts_a, parts_b, depth)
            or self._every_option(parts_a, b, depth)
            or self._every_option(parts_b, a, depth)
        )

    def _every_option(self, parts: Sequence[Mapping[str, Any]], other: Rewritten, depth: int) -> bool:
        options = [part["anyOf"] for part in parts if "anyOf" in part]
        return any(all(self._of(option, other, depth + 1) for option in choice) for choice in options)

    def _parts(self, schema: Rewritten, depth: int) -> Iterator[Rewritten]:
        """The schemas that all hold where this one does."""
        yield schema
        if isinstance(schema, bool) or depth > _DEPTH:
            return
        if (name := referred(schema)) is not None:
            yield from self._parts(self._definitions.get(name, True), depth + 1)
        for part in schema.get("allOf", ()):
            yield from self._parts(part, depth + 1)

    def _some_member(self, parts_a: list[Schema], parts_b: list[Schema], depth: int) -> bool:
        """Whether both are objects or lists that must have a member which cannot be valid for both."""
        types = set(TYPES)
        for part in parts_a + parts_b:
            types &= _types(part)
        if types == {"object"}:
            names = {name: None for part in parts_a + parts_b for name in part.get("required", ())}
            members = (([_property(p, name) for p in parts_a], [_property(p, name) for p in parts_b]) for name in names)
        elif types == {"array"}:
            required = max(part.get("minItems", 0) for part in parts_a + parts_b)
            longest = max(len(part.get("prefixItems", ())) for part in parts_a + parts_b) + 1
            numbers = range(min(required, longest))
            members = (([_item(p, n) for p in parts_a], [_item(p, n) for p in parts_b]) for n in numbers)
        else:
            return False
        return any(self._of(a, b, depth + 1) for ours, theirs in members for a, b in product(ours, theirs))


def _types(schema: Mapping[str, Any]) -> set[str]:
    types = {"number" if name == "integer" else name for name in schema.get("type", TYPES)}
    if (values := values_of(schema)) is not None:
        types &= {type_of(value) for value in values}
    return types


def _differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether their own keywords exclude each other."""
    types = _types(a) & _types(b)
    if not types:
        return True
    for schema, other in ((a, b), (b, a)):
        if (values := values_of(schema)) is not None:
            return not any(_may_be(value, other) for value in values)
    ranges = {"number": ("minimum", "maximum"), "string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}
    return all(kind in ranges and _apart(a, b, *ranges[kind]) for kind in types)


def _apart(a: Mapping[str, Any], b: Mapping[str, Any], lower: str, upper: str) -> bool:
    lows = [part[lower] for part in (a, b) if lower in part]
    highs = [part[upper] for part in (a, b) if upper in part]
    return bool(lows and highs) and max(lows) > min(highs)


def _may_be(value: Any, schema: Mapping[str, Any]) -> bool:
    """False if the value is not valid for the schema's own keywords; patterns and members are not looked at."""
    if (values := values_of(schema)) is not None and key_of(value) not in map(key_of, values):
        return False
    kind = type_of(value)
    if kind == "number":
        types = schema.get("type", TYPES)
        typed = "number" in types or ("integer" in types and float(value).is_integer())
        return typed and schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if kind == "string":
        length = len(value)
        fits = schema.get("minLength", 0) <= length <= schema.get("maxLength", length)
        return fits and kind in _types(schema)
    return kind in _types(schema)


def _property(schema: Mapping[str, Any], name: str) -> Rewritten:
    """What holds for a property; True where patterns may say more."""
    if name in schema.get("properties", {}):
        declared: Rewritten = schema["properties"][name]
        return declared
    return True if "patternProperties" in schema else schema.get("additionalProperties", True)


def _item(schema: Mapping[str, Any], number: int) -> Rewritten:
    first: list[Rewritten] = schema.get("prefixItems", [])
    return first[number] if number < len(first) else schema.get("items", True)
