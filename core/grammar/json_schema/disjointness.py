"""Schemas that list different values, or objects that a property tells apart: 'one of' means 'any of' them.

Unions with a discriminator are such, as pydantic writes them. The engine proves other unions itself, but none of
schemas that refer to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from core.grammar.json_schema.schema import Rewritten, Schema, key_of, referred, values_of


def told_apart(schemas: Sequence[Rewritten], definitions: Mapping[str, Rewritten]) -> bool:
    """Whether each has values of its own, or all are objects with a required property of which each has."""
    tags = [_tags(list(_parts(schema, definitions, set()))) for schema in schemas]
    for name in tags[0]:
        values = [value for tag in tags for value in tag.get(name, ())]
        if all(name in tag for tag in tags) and len(values) == len(set(values)):
            return True
    return False


def _tags(parts: Sequence[Schema]) -> dict[str | None, set[str]]:
    """The values of the required properties that list them; under None its own. `parts` all hold of the value."""
    tags = dict[str | None, set[str]]()
    if listed := next((values for part in parts if (values := values_of(part)) is not None), None):
        tags[None] = set(map(key_of, listed))
    if not any(part.get("type") == ["object"] for part in parts):
        return tags
    required = {name for part in parts for name in part.get("required", ())}
    return tags | {
        name: set(map(key_of, values))
        for part in parts
        for name, inner in part.get("properties", {}).items()
        if name in required and isinstance(inner, dict) and (values := values_of(inner)) is not None
    }


def _parts(schema: Rewritten, definitions: Mapping[str, Rewritten], visited: set[str]) -> Iterator[Schema]:
    """The schemas that all hold where this one does."""
    if isinstance(schema, bool):
        return
    yield schema
    if (name := referred(schema)) is not None and name not in visited:
        visited.add(name)
        yield from _parts(definitions[name], definitions, visited)
    for part in schema.get("allOf", ()):
        yield from _parts(part, definitions, visited)
