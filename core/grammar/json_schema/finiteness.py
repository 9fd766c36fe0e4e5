"""Which parts of a schema have a value that ends.

A schema that needs itself has none: the engine would write such an answer for ever, and gives up. Nor has one that
contradicts itself. Where it may be left out, as an optional property, it is; else the whole schema has no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from core.grammar.json_schema.schema import Rewritten, referred


class Finiteness:
    """Of rewritten schemas, whose references are in `definitions`. A schema with an empty `enum` has no value."""

    def __init__(self, definitions: dict[str, Rewritten]) -> None:
        self._definitions = definitions
        self._finite: set[str] = set()
        rounds = True
        while rounds:  # what a definition needs mostly stands behind it, so later rounds find only cycles
            rounds = False
            for name in reversed(definitions):
                rounds |= self._is_new(name)

    def _is_new(self, name: str) -> bool:
        """Note a definition that ends, once."""
        new = name not in self._finite and self.ends(self._definitions[name])
        self._finite |= {name} if new else set()
        return new

    def ends(self, schema: Rewritten) -> bool:
        """Whether some value of it ends."""
        return schema if isinstance(schema, bool) else not any(True for _ in self._needed_endless(schema))

    def _needed_endless(self, schema: Mapping[str, Any]) -> Iterator[Rewritten]:
        """The schemas right below without which there is no value, and which have none that ends."""
        if schema.get("enum") == []:
            yield False
        if (name := referred(schema)) is not None and name not in self._finite:
            yield self._definitions[name]
        yield from self._endless(schema.get("allOf", ()))
        if "anyOf" in schema and len(endless := list(self._endless(schema["anyOf"]))) == len(schema["anyOf"]):
            yield from endless
        if schema.get("type") == ["object"]:
            yield from self._endless(_needed_properties(schema))
        if schema.get("type") == ["array"]:
            yield from self._endless(_needed_items(schema))

    def _endless(self, schemas: Iterable[Rewritten]) -> Iterator[Rewritten]:
        return (schema for schema in schemas if not self.ends(schema))

    def cause(self, schema: Rewritten) -> list[Rewritten]:
        """The way from a schema that does not end to why: to one that has no value, or back to one on the way."""
        way = [schema]
        while isinstance(way[-1], dict):
            below = next(self._needed_endless(way[-1]), None)
            if below is None or below is False or any(below is earlier for earlier in way):
                break
            way.append(below)
        return way

    def prune(self, schema: Rewritten) -> Rewritten:
        """Put false in place of each part that does not end; the schema itself, or false."""
        if isinstance(schema, bool) or not self.ends(schema):
            return schema is True
        for key in ("properties", "patternProperties"):
            for name, inner in schema.get(key, {}).items():
                schema[key][name] = self.prune(inner)
        for key in ("allOf", "anyOf", "prefixItems"):
            if key in schema:
                schema[key][:] = map(self.prune, schema[key])
        for key in ("items", "additionalProperties"):
            if key in schema:
                schema[key] = self.prune(schema[key])
        return schema


def _needed_properties(schema: Mapping[str, Any]) -> Iterator[Rewritten]:
    properties = schema.get("properties", {})
    others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
    yield from (properties.get(name, others) for name in schema.get("required", ()))


def _needed_items(schema: Mapping[str, Any]) -> Iterator[Rewritten]:
    first, least = schema.get("prefixItems", []), schema.get("minItems", 0)
    yield from first[:least]
    if least > len(first):
        yield schema.get("items", True)
