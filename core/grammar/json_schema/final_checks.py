"""What can be said of a schema only once all that it refers to is rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from core.grammar.json_schema.arrays import MAX_ARRANGEMENTS, arrangements, listed_values
from core.grammar.json_schema.context import Context
from core.grammar.json_schema.disjointness import Disjointness
from core.grammar.json_schema.finiteness import Finiteness
from core.grammar.json_schema.references import subschemas
from core.grammar.json_schema.schema import Path, Rewritten, Schema, SchemaFault, referred

MAX_REACH = 400  # schemas within each other, also by references

_NO_UNION = (
    "'oneOf' can only be held where no two of its schemas have a value in common; write 'anyOf', or give each a "
    "required property with a 'const' of its own"
)
_NO_ARRANGEMENT = (
    f"'uniqueItems' can only be held for items of few values, in {MAX_ARRANGEMENTS} orders at most; list the values in "
    "'enum' and lower 'maxItems', or leave it out"
)
_ENDLESS = (
    "a value of this schema would never end, since it needs another one within; leave a property out of 'required', "
    "allow an empty list, or add another case to 'anyOf'"
)
_CIRCLE = (
    "this schema refers to itself, with no property or item in between, so it says nothing; write what is valid, or "
    "refer to another schema"
)
_TOO_FAR = (
    f"more than {MAX_REACH} schemas lie within each other here, by references; leave some out, or write inner ones "
    "without references"
)
_CONTROLS = (
    "a text with control characters is a value that no grammar can hold beside objects with further properties; "
    "write 'additionalProperties': false in those"
)


def without_endless(root: Rewritten, context: Context) -> tuple[Rewritten, dict[str, Rewritten]]:
    """The schema and its definitions, checked, with false in place of each part that has no value."""
    for arranged, path in context.unique_lists:
        _arrange(arranged, path, context)
    for options, path in context.unions:
        if context.strict and not Disjointness(context.definitions).of_all(options):
            raise SchemaFault(path, _NO_UNION)
    if context.has_open_objects and context.controls is not None:
        raise SchemaFault(context.controls, _CONTROLS)
    _check_circles(context)
    _check_reach(root, 0, set(), context)
    finiteness = Finiteness(context.definitions)
    if not finiteness.ends(root):
        raise _endless(finiteness.cause(root), context)
    return finiteness.prune(root), {name: finiteness.prune(part) for name, part in context.definitions.items()}


def _arrange(arranged: Schema, path: Path, context: Context) -> None:
    items, low, high = (arranged.pop(keyword) for keyword in ("items", "minItems", "maxItems"))
    values = listed_values(items, context.definitions)
    lists = None if values is None else arrangements(values, low, high)
    if lists is None:
        context.refuse_if_strict(path, _NO_ARRANGEMENT)
    elif lists:
        arranged["anyOf"] = lists
    else:
        arranged["enum"] = []
        context.explained(arranged, f"there are no {low} different items")


def _check_circles(context: Context) -> None:
    """Refuse definitions that say nothing but each other; a validator would never come to an end with them."""
    try:
        TopologicalSorter({name: _names_in_place(part) for name, part in context.definitions.items()}).prepare()
    except CycleError as error:
        raise SchemaFault(context.path(context.definitions[error.args[1][0]]) or (), _CIRCLE) from None


def _names_in_place(schema: Rewritten) -> set[str]:
    """The definitions that a schema refers to for the value itself, not for a part of it."""
    if isinstance(schema, bool):
        return set()
    name = referred(schema)
    names = set[str]() if name is None else {name}
    return names.union(*map(_names_in_place, [*schema.get("allOf", ()), *schema.get("anyOf", ())]))


def _check_reach(schema: Rewritten, depth: int, reached: set[str], context: Context) -> None:
    """Refuse schemas that the engine, which reads them in this order, goes too deep into: it would crash."""
    if isinstance(schema, bool):
        return
    if depth > MAX_REACH:
        raise SchemaFault(context.path(schema) or (), _TOO_FAR)
    if (name := referred(schema)) is not None and name not in reached:
        reached.add(name)
        _check_reach(context.definitions[name], depth + 1, reached, context)
    for _, inner in subschemas(schema):
        _check_reach(inner, depth + 1, reached, context)


def _endless(way: Sequence[Rewritten], context: Context) -> SchemaFault:
    cause = way[-1]
    path = next((path for part in reversed(way) if (path := context.path(part)) is not None), ())
    if (reason := context.reason(cause)) is not None:
        return SchemaFault(path, f"nothing is valid here: {reason}")
    if isinstance(cause, Mapping) and "required" in cause and cause.get("additionalProperties") is False:
        names = [name for name in cause["required"] if name not in cause.get("properties", {})]
        if names:
            message = f"nothing is valid here: 'required' names '{names[0]:.40}', which is no property"
            return SchemaFault(path, message)
    return SchemaFault(path, _ENDLESS)
