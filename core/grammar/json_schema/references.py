"""What a `$ref` of a schema means: a part of the same schema, by its pointer, its anchor or its identifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from core.grammar.json_schema.schema import Path, SchemaFault

_IN_OBJECTS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_IN_LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")
_ALONE = ("items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames")


class Place(NamedTuple):
    """A schema, its path in the whole one, and the identifier that references in it are relative to."""

    schema: Any
    path: Path
    base: str


class References:
    """The references of one schema. Nothing is fetched."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._places: dict[str, Place] = {}
        self.root = self._index(Place(whole, (), ""))
        self._places.setdefault("", self.root)

    def target(self, reference: str, base: str, path: Path) -> Place:
        """The place that a reference at `path` names; raises `SchemaFault` where there is none."""
        try:
            address, fragment = urldefrag(urljoin(base, reference))
        except ValueError:
            address, fragment = reference, ""
        place = self._places.get(address if fragment.startswith("/") or not fragment else f"{address}#{fragment}")
        if place is not None and fragment.startswith("/"):
            place = _below(place, fragment)
        if place is None:
            shown = reference if len(reference) <= 64 else reference[:64] + "..."
            raise SchemaFault(path, f"'$ref' names {shown!r}, which is not in the schema; write '#/$defs/<name>'")
        return place

    def _index(self, root: Place) -> Place:
        """Note everything in the schema that has an identifier or an anchor; the root, with its base."""
        places = [root]
        for number, outer in enumerate(places):
            place = places[number] = entered(outer)
            if place.base != outer.base:
                self._places.setdefault(place.base, place)
            if isinstance(anchor := place.schema.get("$anchor"), str):
                self._places.setdefault(f"{place.base}#{anchor}", place)
            places += [Place(inner, place.path + step, place.base) for step, inner in subschemas(place.schema)]
        return places[0]


def entered(place: Place) -> Place:
    """The same place, with the base of its own identifier if it has one."""
    identifier = place.schema.get("$id", place.schema.get("id"))
    if not isinstance(identifier, str) or identifier.startswith("#"):
        return place
    try:
        return place._replace(base=urldefrag(urljoin(place.base, identifier)).url)
    except ValueError:
        return place


def _below(place: Place, pointer: str) -> Place | None:
    schema, path = place.schema, place.path
    for token in pointer[1:].split("/"):
        name = unquote(token).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and name in schema:
            schema, path = schema[name], (*path, name)
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema, path = schema[int(name)], (*path, int(name))
        else:
            return None
    return Place(schema, path, place.base)


def subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The objects that are schemas right below this one, with the steps to them."""
    for key, value in schema.items():
        within: Iterator[tuple[Path, Any]] = iter(())
        if key in _IN_OBJECTS and isinstance(value, dict):
            within = (((key, name), inner) for name, inner in value.items())
        elif isinstance(value, list) and (key in _IN_LISTS or key == "items"):
            within = (((key, index), inner) for index, inner in enumerate(value))
        elif key in _ALONE:
            within = iter([((key,), value)])
        yield from ((step, inner) for step, inner in within if isinstance(inner, dict))
