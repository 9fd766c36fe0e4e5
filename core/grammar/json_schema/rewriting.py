"""A JSON schema, rewritten keyword by keyword.

The rewritten schema has only keywords that are enforced, those that belong together beside each other, all that
references lead to in `$defs`, and no part that has no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from core.grammar.json_schema import arrays, numbers, objects, strings
from core.grammar.json_schema.combinations import add_all, restrict
from core.grammar.json_schema.context import Context, Part
from core.grammar.json_schema.final_checks import without_endless
from core.grammar.json_schema.keywords import COMBINATIONS, COMPANIONS, IDLE, KEYWORDS, KINDS, OLD_DRAFTS, UNENFORCEABLE
from core.grammar.json_schema.references import Place, References, entered
from core.grammar.json_schema.schema import MAX_DEPTH, TYPES, Path, Rewritten, Schema, SchemaFault

TOO_DEEP = f"schemas may be nested {MAX_DEPTH} deep; put inner ones into '$defs', and refer to them"

_RESTRICTIONS: dict[str, Callable[[Part, Context], Iterator[Rewritten]]] = {
    "number": numbers.restrictions,
    "string": strings.restrictions,
    "array": arrays.restrictions,
    "object": objects.restrictions,
}


class RewrittenSchema:
    """The schema that a client sent, for the engine. Raises `SchemaFault` for one that cannot be used.

    Unless `strict`, keywords that cannot be enforced are ignored.
    """

    def __init__(self, whole: Mapping[str, Any], strict: bool) -> None:
        self._references = References(whole)
        old_draft = any(draft in str(whole.get("$schema", "")) for draft in OLD_DRAFTS)
        self._context = Context(strict, old_draft, self._rewritten)
        root = self._rewritten(self._references.root, 0)
        while self._context.pending:
            name, place = self._context.pending.pop()
            self._context.definitions[name] = self._rewritten(place, 0)
        self.root, self.definitions = without_endless(root, self._context)

    @property
    def spelled_characters(self) -> bool:
        r"""Whether control characters may be written, such as \\u001b.

        If so, the engine takes `\\u0061` for another name than `a`, so it must not where names are taken.
        """
        return not self._context.has_open_objects

    def whole(self) -> Schema:
        """The schema with all that its references lead to."""
        return self.with_definitions(self.root)

    def with_definitions(self, part: Rewritten) -> Schema:
        """A part of it that can stand alone."""
        alone = dict(part) if isinstance(part, Mapping) else {} if part else {"enum": []}
        return {**alone, "$defs": self.definitions} if self.definitions else alone

    def path(self, part: Rewritten) -> Path:
        """Where in the client's schema a part of this one comes from."""
        return self._context.path(part) or ()

    def _rewritten(self, place: Place, depth: int) -> Rewritten:
        schema, path, context = place.schema, place.path, self._context
        if isinstance(schema, bool):
            return schema or context.impossible("nothing is valid for 'false'", path)
        if not isinstance(schema, dict):
            raise SchemaFault(path, "a schema must be an object, true or false")
        if depth > MAX_DEPTH:
            raise SchemaFault((), TOO_DEEP)
        types = _types(schema, path)
        rewritten: Schema = {"type": types} if "type" in schema else {}
        part = Part(_enforceable(schema, types, path, context), types, entered(place), depth, rewritten)
        first = _first_of_kinds(part.keywords)
        for keyword in part.keywords:
            if keyword == first:
                _restrict_kinds(part, context)
            elif keyword in COMBINATIONS:
                restrict(keyword, part, context, self._references)
        # A restriction that has no value stands for the whole schema.
        nothing = [inner for inner in rewritten.get("allOf", ()) if context.reason(inner) is not None]
        return context.noted(nothing[0] if nothing else rewritten, path)


def _types(schema: Mapping[str, Any], path: Path) -> list[str]:
    names = schema.get("type", list(TYPES))
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names:
        raise SchemaFault(path, "type must be a name or a list of names")
    for name in names:
        if name not in (*TYPES, "integer"):
            raise SchemaFault(path, f"there is no type {name!s:.40}; write one of {', '.join(TYPES)} or integer")
    return [name for name in dict.fromkeys(names) if name != "integer" or "number" not in names]


def _enforceable(schema: Mapping[str, Any], types: Sequence[str], path: Path, context: Context) -> Mapping[str, Any]:
    """The keywords of a schema, without those that say nothing here or cannot be enforced."""
    for keyword, instead in UNENFORCEABLE.items():
        if keyword in schema and _matters(keyword, schema, types):
            context.refuse_if_strict(path, f"'{keyword}' cannot be enforced; {instead}, or leave it out")
    return {keyword: value for keyword, value in schema.items() if keyword not in UNENFORCEABLE}


def _matters(keyword: str, schema: Mapping[str, Any], types: Sequence[str]) -> bool:
    if schema[keyword] in IDLE.get(keyword, ()) or KINDS.get(keyword, types[0]) not in types:
        return False
    return keyword not in COMPANIONS or any(other in schema for other in COMPANIONS[keyword].split("|"))


def _first_of_kinds(keywords: Mapping[str, Any]) -> str:
    """The keyword in whose place the keywords of numbers, strings, arrays and objects are written, all together."""
    of_kinds = [keyword for keyword in keywords if any(keyword in kind for kind in KEYWORDS.values())]
    return "properties" if "properties" in of_kinds else of_kinds[0] if of_kinds else ""


def _restrict_kinds(part: Part, context: Context) -> None:
    """Restrict `part.rewritten` by the keywords of each kind of value, which say nothing about other kinds."""
    for kind, restrictions in _RESTRICTIONS.items():
        names = {"number", "integer"} if kind == "number" else {kind}
        if names.isdisjoint(part.types) or not any(keyword in part.keywords for keyword in KEYWORDS[kind]):
            continue
        schemas = list(restrictions(part, context))
        if others := [name for name in part.types if name not in names]:
            schemas = [context.noted({"anyOf": [{"type": others}, schema]}, part.path) for schema in schemas]
        add_all(schemas, part.rewritten)
