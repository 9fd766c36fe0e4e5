"""Keywords of JSON Schema: which concern what, and which cannot be enforced."""

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
OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07", "2019-09")
COMBINATIONS = ("$ref", "allOf", "anyOf", "oneOf", "const", "enum")
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
