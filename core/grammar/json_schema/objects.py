"""The keywords of objects: properties, which are required, and how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from core.grammar.json_schema import strings
from core.grammar.json_schema.context import Context, Part
from core.grammar.json_schema.schema import Rewritten, SchemaFault

_NAMED = ("properties", "patternProperties")


def restrictions(part: Part, context: Context) -> Iterator[Rewritten]:
    """What further schemas an object must be valid against; `part.rewritten` gets the keywords that it can hold."""
    for keyword in _NAMED:
        if keyword in part.keywords:
            part.rewritten[keyword] = _properties(keyword, part, context)
    if "additionalProperties" in part.keywords:
        closed = part.keywords["additionalProperties"] is False
        part.rewritten["additionalProperties"] = not closed and context.inner(part, "additionalProperties")
    if required := _required(part, context):
        part.rewritten["required"] = required
    if any(part.rewritten.get(keyword) for keyword in (*_NAMED, "required")):
        context.has_open_objects |= part.rewritten.get("additionalProperties") is not False
    yield from _count(part, context)


def _properties(keyword: str, part: Part, context: Context) -> dict[str, Rewritten]:
    if not isinstance(part.keywords[keyword], dict):
        raise SchemaFault(part.path, f"'{keyword}' must be an object of schemas")
    schemas = {name: context.inner(part, keyword, name) for name in part.keywords[keyword]}
    if keyword == "properties":
        return {context.checked_text(name, part.path): schema for name, schema in schemas.items()}
    noun = "a name in 'patternProperties'"
    return {strings.pattern(name, noun, part.path, context): schema for name, schema in schemas.items()}


def _required(part: Part, context: Context) -> list[str]:
    names = part.keywords.get("required", [])
    if isinstance(names, bool):  # of draft 3, where it stands in the property
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SchemaFault(part.path, "'required' must be a list of names")
    return list(dict.fromkeys(context.checked_text(name, part.path) for name in names))


def _count(part: Part, context: Context) -> Iterator[Rewritten]:
    """The bounds of the number of properties, as far as the engine can keep them.

    A name may be written twice where it is not in `properties`, so two of these cannot be asked for.
    """
    low, high, counts = part.counts("minProperties", "maxProperties")
    required = part.rewritten.get("required", ())
    optional = len(part.rewritten.get("properties", {}).keys() - set(required))
    closed = part.rewritten.get("additionalProperties") is False and "patternProperties" not in part.rewritten
    if max(low, len(required)) > high:
        message = f"no object has {max(low, len(required))} properties at least and {high} at most"
        yield context.impossible(message, part.path)
        return
    more, room = low - len(required), high - len(required)
    if more <= 0:
        counts.pop("minProperties", None)
    if closed and room >= optional:
        counts.pop("maxProperties", None)
    if closed and more > optional:
        yield context.impossible(f"'minProperties' asks for {low} properties, and there are fewer", part.path)
        return
    if counts and not _engine_can_keep(counts, more, room, optional, closed):
        message = "'minProperties' and 'maxProperties' cannot be enforced here; write 'required', or cases in 'anyOf'"
        context.refuse_if_strict(part.path, message)
        counts = {} if optional else counts | {"minProperties": len(required) + 1}
    part.rewritten.update(counts)


def _engine_can_keep(counts: Mapping[str, int], more: int, room: int, optional: int, closed: bool) -> bool:
    if not optional:
        return more <= 1
    return closed and more <= 1 and (room == 1 if "maxProperties" in counts else True)
