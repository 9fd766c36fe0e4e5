"""Keywords of JSON Schema: which concern what, which cannot be enforced, and what formats add to the engine's own."""

from __future__ import annotations

from typing import Any

_ANYTHING_ELSE = "say with other keywords what is allowed"
_CASES = "list the cases in 'anyOf'"
UNENFORCEABLE = {  # and what to write instead
    "not": _ANYTHING_ELSE,
    "if": _CASES,
    "then": _CASES,
    "else": _CASES,
    "contains": "list the items in 'prefixItems', or bound their number with 'minItems'",
    "minContains": "bound the number of items with 'minItems'",
    "maxContains": "bound the number of items with 'maxItems'",
    "propertyNames": "write 'patternProperties', and 'additionalProperties': false",
    "dependentRequired": _CASES,
    "dependentSchemas": _CASES,
    "dependencies": _CASES,
    "unevaluatedProperties": "write 'additionalProperties'",
    "unevaluatedItems": "write 'items'",
    "$dynamicRef": "write '$ref'",
    "$recursiveRef": "write '$ref'",
}
IDLE: dict[str, tuple[Any, ...]] = {  # values that ask for nothing
    "not": (False,),
    "propertyNames": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    "uniqueItems": (False,),
}
COMPANIONS = {  # keywords that say nothing without another
    "then": "if",
    "else": "if",
    "if": "then|else",
    "minContains": "contains",
    "maxContains": "contains",
}
KINDS = {  # keywords that concern values of one type
    "contains": "array",
    "minContains": "array",
    "maxContains": "array",
    "unevaluatedItems": "array",
    "uniqueItems": "array",
    "propertyNames": "object",
    "dependentRequired": "object",
    "dependentSchemas": "object",
    "dependencies": "object",
    "unevaluatedProperties": "object",
}
FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"))
_YEAR = "(...[1-9]|..[1-9].|.[1-9]..|[1-9]...)"  # but for 0000
_LEAP_YEAR = "(..(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DAY = f"({_YEAR}-(0[13-9]-..|1.-..|02-[01].|02-2[0-8])|{_LEAP_YEAR}-02-29)"
OF_FORMATS: dict[str, dict[str, Any]] = {  # the engine allows 29 February and second 60 in any year and minute
    "date": {"pattern": f"^{_DAY}$"},
    "time": {"pattern": "^.{6}[0-5].*$"},
    "date-time": {"pattern": f"^{_DAY}.{{7}}[0-5].*$"},
    "hostname": {"maxLength": 253},
}
OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07", "2019-09")
APPLICATORS = ("$ref", "allOf", "anyOf", "oneOf", "const", "enum")
KEYWORDS = {
    "number": ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
    "object": (
        "properties",
        "patternProperties",
        "additionalProperties",
        "required",
        "minProperties",
        "maxProperties",
    ),
}
