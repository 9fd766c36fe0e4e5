"""The keywords of arrays: items, how many, and that they differ."""

from __future__ import annotations

from collections.abc import Iterator

from core.grammar.json_schema.context import Context, Part, written_counts
from core.grammar.json_schema.faults import SchemaFault
from core.grammar.json_schema.schema import Rewritten, Schema


def restrictions(part: Part, context: Context) -> Iterator[Rewritten]:
    """What further schemas an array must be valid against; `part.rewritten` gets the keywords that it can hold."""
    keywords, path, rewritten = part.keywords, part.path, part.rewritten
    low, high = part.counts("minItems", "maxItems")
    rewritten.update(written_counts(low, high, "minItems", "maxItems"))
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
