"""200 JSON schemas of the kinds that jsonschemabench collects, written for these tests; the same always.

160 schemas are 20 topics in eight forms (nested, listed, shared by reference, ...); 40 are kinds of their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Schema = dict[str, Any]

_DRAFT, _DRAFT_7 = "https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"
ANY_TEXT, ANY_NUMBER, YES_OR_NO, NOTHING = ({"type": kind} for kind in ("string", "number", "boolean", "null"))


class Case(NamedTuple):
    """A schema and what an answer is about."""

    topic: str
    schema: Schema


# ---- what schemas are made of


def text(most: int = 16, least: int = 1) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most}


def pattern(regex: str) -> Schema:
    return {"type": "string", "pattern": regex}


def formatted(name: str) -> Schema:
    return {"type": "string", "format": name}


def whole(low: int = 0, high: int = 100, **more: Any) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, **more}


def number(low: float, high: float, **more: Any) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high, **more}


def one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def maybe(schema: Schema) -> Schema:
    return either(schema, NOTHING)


def listed(items: Schema, low: int = 1, high: int = 3) -> Schema:
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


def row(*items: Schema, rest: Any = False, **more: Any) -> Schema:
    return {"type": "array", "prefixItems": list(items), "items": rest, "minItems": len(items), **more}


def keyed(fields: Schema, optional: Schema | None = None, rest: Any = False, **more: Any) -> Schema:
    """An object that has the fields, perhaps the optional ones, and others as `rest` says."""
    properties = {**fields, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(fields), "additionalProperties": rest, **more}


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


TIME = pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$")
SKU = pattern("^[A-Z]{2,3}-[0-9]{4}$")
LOWER = pattern("^[a-z]{2,12}$")
COLOUR = pattern("^#[0-9a-f]{6}$")
CURRENCY = one_of("EUR", "USD", "JPY", "GBP", "CHF")
COUNTRY = one_of("AT", "BR", "CA", "CH", "CN", "DE", "FR", "GB", "IN", "JP", "KR", "MX", "NL", "NO", "US", "ZA")
DAYS = one_of("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

TOPICS: dict[str, Schema] = {
    "a person": {"name": text(), "age": whole(0, 120), "email": formatted("email"), "married": YES_OR_NO},
    "an order in a shop": {"sku": SKU, "quantity": whole(1, 99), "price": number(0, 999), "currency": CURRENCY},
    "the weather": {"city": text(), "sky": one_of("clear", "cloudy", "rain", "snow"), "celsius": number(-40, 50)},
    "a film": {"title": text(), "year": whole(1900, 2030), "genres": listed(one_of("drama", "comedy", "crime"))},
    "a recipe": {"dish": text(), "minutes": whole(1, 240), "ingredients": listed(text(10)), "vegan": YES_OR_NO},
    "a flight": {"from": pattern("^[A-Z]{3}$"), "to": pattern("^[A-Z]{3}$"), "leaves": formatted("date-time")},
    "a bank account": {"owner": text(), "iban": pattern("^[A-Z]{2}[0-9]{6}$"), "balance": number(-5000, 5000)},
    "a server": {"host": formatted("hostname"), "address": formatted("ipv4"), "port": whole(1, 65535)},
    "a medical visit": {"patient": formatted("uuid"), "day": formatted("date"), "complaint": maybe(text(20))},
    "a book": {"title": text(), "isbn": pattern("^97[89][0-9]{10}$"), "pages": whole(1, 2000), "read": YES_OR_NO},
    "a football match": {"home": text(10), "away": text(10), "goals": row(whole(0, 9), whole(0, 9))},
    "a shape on a canvas": {"kind": one_of("circle", "square"), "fill": COLOUR, "at": row(ANY_NUMBER, ANY_NUMBER)},
    "a support ticket": {
        "priority": one_of(1, 2, 3),
        "status": one_of("open", "closed", None),
        "labels": listed(LOWER),
    },
    "a sensor": {"id": whole(1, 9999), "volts": number(0, 5, multipleOf=0.25), "seen": formatted("time")},
    "a train": {"line": pattern("^(ICE|RE|S)[1-9][0-9]?$"), "track": whole(1, 24), "delay": maybe(whole(0, 180))},
    "a commit": {"hash": pattern("^[0-9a-f]{8}$"), "branch": LOWER, "files": whole(1, 50), "merged": YES_OR_NO},
    "a calendar entry": {"day": DAYS, "begins": TIME, "ends": TIME, "guests": listed(text(8), 0, 3)},
    "a parcel": {
        "to": COUNTRY,
        "kilos": {"type": "number", "exclusiveMinimum": 0, "maximum": 30},
        "insured": YES_OR_NO,
    },
    "an exam": {"subject": one_of("maths", "physics", "音楽", "Geschichte"), "marks": listed(whole(1, 6), 2, 4)},
    "a song": {"name": text(12), "seconds": whole(10, 900), "key": pattern("^[A-G][b#]?m?$"), "tempo": whole(40, 220)},
}


# ---- the forms of a topic


def _flat(fields: Schema) -> Schema:
    return keyed(fields)


def _optional(fields: Schema) -> Schema:
    first, *others = fields
    return keyed({first: fields[first]}, {name: fields[name] for name in others})


def _nested(fields: Schema) -> Schema:
    inner = keyed(fields, title="Details", description="All that is known.")
    return keyed({"id": whole(1, 999), "data": keyed({"details": inner}, {"note": maybe(text(12))})})


def _listing(fields: Schema) -> Schema:
    return keyed({"items": listed(keyed(dict(list(fields.items())[:2])), 1, 3), "total": whole(0, 9)})


def _tagged(fields: Schema) -> Schema:
    failed = keyed({"kind": {"const": "error"}, "code": one_of(400, 404, 500)})
    return {"oneOf": [keyed({"kind": {"const": "found"}, **fields}), failed]}


def _shared(fields: Schema) -> Schema:
    return keyed({"before": ref("state"), "after": maybe(ref("state"))}, **{"$defs": {"state": keyed(fields)}})


def _mapping(fields: Schema) -> Schema:
    return keyed({"version": {"const": 2}}, rest=either(*fields.values()), maxProperties=3)


def _merged(fields: Schema) -> Schema:
    first, *others = ({"properties": {name: schema}, "required": [name]} for name, schema in fields.items())
    return {"type": "object", "allOf": [first, *others], "$schema": _DRAFT, "properties": {"ok": YES_OR_NO}}


FORMS = (_flat, _optional, _nested, _listing, _tagged, _shared, _mapping, _merged)

# ---- kinds of their own

_TREE = keyed({"value": whole(0, 9), "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}})
_LINKS = keyed({"value": LOWER, "next": maybe(ref("link"))})
_LEFT = keyed({"left": whole(0, 9), "then": maybe(ref("right"))})
_RIGHT = keyed({"right": YES_OR_NO, "then": maybe(ref("left"))})
_SUM = either(whole(0, 99), keyed({"op": one_of("+", "-", "*"), "terms": listed(ref("sum"), 2, 2)}))
_POINT = row(number(-180, 180), number(-90, 90), maxItems=2)
_LONG = one_of(
    *(f"{adjective}-{noun}-{n}" for adjective in ("red", "old") for noun in ("fox", "owl") for n in range(60))
)
_WIDE = keyed({f"field_{n:02}": one_of("a", "b", n) for n in range(14)})


def _deep(levels: int) -> Schema:
    return keyed({f"level_{levels}": _deep(levels - 1)}) if levels else whole(0, 1)


KINDS: dict[str, Schema] = {
    "a tree": _TREE,
    "a linked list": {**ref("link"), "$defs": {"link": _LINKS}},
    "turns": {**ref("left"), "$defs": {"left": _LEFT, "right": _RIGHT}},
    "a calculation": {"$defs": {"sum": _SUM}, **ref("sum")},
    "old definitions": {"definitions": {"n": whole(1, 5)}, "type": "array", "items": {"$ref": "#/definitions/n"}},
    "a place on a map": keyed({"type": {"const": "Point"}, "coordinates": _POINT}),
    "an outline": keyed({"type": {"const": "LineString"}, "coordinates": listed(_POINT, 2, 3)}),
    "a code name": keyed({"code": _LONG, "spare": maybe(_LONG)}),
    "a country": COUNTRY,
    "a wide row": _WIDE,
    "a deep box": _deep(9),
    "nothing": keyed({}),
    "nothing within": keyed({"empty": keyed({}), "list": listed(ANY_TEXT, 0, 0), "null": NOTHING}),
    "名前": keyed({"名前": text(8), "年齢": whole(0, 120), "größe": number(0, 3)}, {"🙂": YES_OR_NO}),
    "quotes": keyed(
        {'say "hi"': YES_OR_NO, "back\\slash": whole(0, 3), "new\nline": NOTHING, "tab\t": one_of("\t", "\u2028")}
    ),
    "words of many scripts": listed(one_of("Straße", "кот", "猫", "🦊🐻", "a\u0301", "naïve"), 2, 4),
    "any value": keyed({"anything": {}, "more": True}),
    "any object": {"type": "object", "maxProperties": 2, "additionalProperties": whole(0, 9)},
    "counts by word": {"type": "object", "additionalProperties": whole(0, 9), "minProperties": 1, "maxProperties": 3},
    "keys by pattern": {
        "type": "object",
        "patternProperties": {"^x_[a-z]{1,4}$": whole()},
        "additionalProperties": False,
    },
    "a typed key beside others": keyed(
        {"id": whole()}, rest=text(6), patternProperties={"^n_": ANY_NUMBER}, maxProperties=3
    ),
    "several types": keyed({"a": {"type": ["string", "null"], "maxLength": 6}, "b": {"type": ["integer", "boolean"]}}),
    "a fixed object": {"const": {"a": [1, 2.5, None], "b": {"c": "x", "d": True}}},
    "values of every type": listed(one_of(1, "two", None, True, [3, "four"], {"five": 6.5}), 1, 3),
    "an open row": row(text(5), whole(0, 9), rest=YES_OR_NO, maxItems=4),
    "an old row": {
        "$schema": _DRAFT_7,
        "type": "array",
        "items": [text(5), whole(0, 9)],
        "additionalItems": False,
        "minItems": 2,
    },
    "a matrix": listed(listed(whole(-9, 9), 3, 3), 2, 3),
    "numbers in bounds": row(
        *({"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high} for low, high in [(0, 1), (-1, 0)]),
        *(whole(low, high) for low, high in [(-17, 403), (7, 7), (-3, -2), (99, 1001)]),
    ),
    "multiples": row(whole(0, 100, multipleOf=7), number(0, 10, multipleOf=0.5), {"type": "integer", "multipleOf": 12}),
    "free numbers": listed(ANY_NUMBER, 2, 4),
    "lengths": row(text(3, 3), text(0, 0), text(9, 8), {"type": "string", "maxLength": 2}),
    "part of a text": row(pattern("[0-9]{3}$"), pattern("^v"), pattern("^a?b{2,3}$|^c$"), rest=False, maxItems=3),
    "days and times": row(*(formatted(name) for name in ("date", "time", "date-time", "duration"))),
    "addresses": row(*(formatted(name) for name in ("email", "hostname", "ipv4", "ipv6", "uri"))),
    "identities": listed(formatted("uuid"), 1, 2),
    "a choice of objects": {"oneOf": [keyed({"type": {"const": n}, n: whole()}) for n in ("a", "b", "c")]},
    "an object with one more": {
        **keyed({"a": whole()}, rest=True),
        "anyOf": [keyed({n: YES_OR_NO}, rest=True) for n in "bc"],
    },
    "a bounded reference": {
        "$defs": {"n": {"type": "integer"}},
        **keyed({"n": {**ref("n"), "minimum": 3, "maximum": 8}}),
    },
    "an annotated number": {
        "$schema": _DRAFT,
        "title": "N",
        "default": 1,
        "examples": [2],
        "$comment": "-",
        **whole(1, 9),
    },
    "a sentence": {"type": "string", "maxLength": 60},
}


def schemas() -> list[Case]:
    """All 200, the forms of a topic in turn, then the others."""
    formed = [Case(topic, form(fields)) for topic, fields in TOPICS.items() for form in FORMS]
    return [*formed, *(Case(topic, schema) for topic, schema in KINDS.items())]
