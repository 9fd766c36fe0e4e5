"""The keywords that combine schemas or list values: `$ref`, `allOf`, `anyOf`, `oneOf`, `const` and `enum`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.grammar.json_schema.context import Context, Part
from core.grammar.json_schema.references import References
from core.grammar.json_schema.schema import Rewritten, Schema, SchemaFault


def restrict(keyword: str, part: Part, context: Context, references: References) -> None:
    """Restrict `part.rewritten` by one of these keywords."""
    value, path = part.keywords[keyword], part.path
    match keyword:
        case "$ref":
            _add(keyword, _reference(value, part, context, references), part.rewritten)
        case "const" | "enum":
            values = [value] if keyword == "const" else value
            if not isinstance(values, list) or not values:
                raise SchemaFault(path, "'enum' must be a list of values")
            for listed in values:
                context.check_value(listed, path)
            _add(keyword, value, part.rewritten)
        case "allOf":
            add_all(context.inner_list(part, keyword), part.rewritten)
        case "anyOf":
            _add(keyword, context.inner_list(part, keyword), part.rewritten)
        case "oneOf":
            options = context.inner_list(part, keyword)
            context.unions.append((options, path))
            _add("anyOf", options, part.rewritten)


def add_all(schemas: Sequence[Rewritten], rewritten: Schema) -> None:
    """Restrict a schema by all of these."""
    if schemas:
        rewritten.setdefault("allOf", []).extend(schemas)


def _add(keyword: str, value: Any, rewritten: Schema) -> None:
    if keyword in rewritten:
        add_all([{keyword: value}], rewritten)
    else:
        rewritten[keyword] = value


def _reference(value: Any, part: Part, context: Context, references: References) -> str:
    if not isinstance(value, str):
        raise SchemaFault(part.path, "'$ref' must be a text such as '#/$defs/name'")
    return context.reference(references.target(value, part.place.base, part.path))
