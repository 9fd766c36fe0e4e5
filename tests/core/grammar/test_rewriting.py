"""What the engine would get wrong in schemas is held all the same, or refused by path and in words of this service."""

from __future__ import annotations

import json
import re
from enum import Enum
from itertools import permutations
from typing import Annotated, Any, Literal

import pydantic
import pytest

from core.errors import InvalidRequest
from core.grammar.building import engine_schema, of_json_schema, of_lark, of_regex
from core.grammar.json_schema.final_checks import MAX_REACH
from core.grammar.json_schema.number_bounds import LARGEST, MAX_LISTED
from tests.core.grammar.test_building import FIELD, agrees

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
JARGON = re.compile(
    r"NoExtension|ff_tokens|coerce|lexer|Parser ?Error|Unimplemented|expected f64|<non|json-schema:///", re.IGNORECASE
)


def accepted(schema: dict[str, Any], *texts: str) -> list[bool]:
    grammar = of_json_schema(schema, FIELD)
    return [agrees(grammar, text) for text in texts]


def refusal(schema: dict[str, Any], strict: bool = True) -> tuple[str, str]:
    """The path at fault, and what is said of it."""
    with pytest.raises(InvalidRequest) as refused:
        of_json_schema(schema, FIELD, strict=strict)
    field = str(refused.value.field)
    assert field.startswith(FIELD)
    assert str(refused.value).startswith(f"'{field}': ")
    return field.removeprefix(FIELD), str(refused.value)


# ---- numbers


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 0.5}, ["0.25", "0.01"], ["0", "0.0", "0.5"]),
        ({"exclusiveMinimum": 1, "maximum": 1.5}, ["1.5", "1.001"], ["1", "1.0"]),
        ({"exclusiveMinimum": -0.5, "exclusiveMaximum": 0}, ["-0.25"], ["-0", "0", "-0.0", "-0.5"]),
        ({"exclusiveMaximum": 1, "minimum": 0}, ["0", "0.9", "0.99"], ["1", "0.99999999999999999999"]),
        ({"minimum": -12.75, "maximum": 12.75}, ["12.7", "-12.7", "12.75", "12"], ["12.8", "-12.76"]),
        ({"exclusiveMinimum": 0}, ["0.5", "1"], ["0", "0." + "0" * 400 + "1"]),
        ({"minimum": 0, "exclusiveMinimum": True, "maximum": 9}, ["1", "9"], ["0"]),
        ({"exclusiveMinimum": True, "allOf": [{}], "minimum": 0}, ["1"], ["0"]),
        ({"exclusiveMaximum": False, "maximum": 9}, ["9"], ["10"]),
        ({"allOf": [{"exclusiveMinimum": 0}, {"exclusiveMaximum": 0.5}]}, ["0.25"], ["0"]),
    ],
)
def test_an_excluded_bound_is_not_answered(schema: dict[str, Any], valid: list[str], invalid: list[str]) -> None:
    for drafted in ({}, {"$schema": DRAFT_4}):
        found = accepted({"type": "number", **drafted, **schema}, *valid, *invalid)
        assert found == [True] * len(valid) + [False] * len(invalid)


def test_whole_numbers_beyond_those_of_floats_keep_their_bounds() -> None:
    edge = 2**53
    assert accepted({"type": "integer", "exclusiveMinimum": edge}, str(edge), str(edge + 2)) == [False, True]
    assert accepted({"type": "integer", "maximum": edge + 1}, str(edge), str(edge + 2)) == [True, False]
    assert accepted({"type": "number", "maximum": 1e300}, str(LARGEST)) == [True]
    assert refusal({"properties": {"a": {"minimum": 1e19}}})[0] == ".properties.a"


@pytest.mark.parametrize("value", [2**53 + 1, 2**63, 10**25, 1e300, 0.9999999999999999])
def test_a_constant_that_the_engine_would_change_is_refused(value: float) -> None:
    for schema in ({"const": value}, {"enum": ["a", {"b": [value]}]}):
        assert "no grammar can hold" in refusal(schema)[1]


@pytest.mark.parametrize("value", [0.1, 1e-7, 2**53, -(2**60), 123456.789, 4.35, -0.5])
def test_other_constants_are_answered(value: float) -> None:
    text = f"{value:.7f}".rstrip("0") if isinstance(value, float) else str(value)
    assert accepted({"const": value}, text) == [True]


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "number", "multipleOf": 0.07}, ["0.14", "-7"], ["0.1"]),
        ({"type": "number", "multipleOf": 0.1}, ["0.3"], ["0.35", "2" + "0" * 20 + ".1"]),
        ({"type": "integer", "multipleOf": 1.5}, ["3", "-6"], ["4", "1"]),
        ({"type": "integer", "multipleOf": 3600, "minimum": 0, "maximum": 86400}, ["7200"], ["7201", "90000"]),
        ({"allOf": [{"type": "integer", "multipleOf": 4}, {"multipleOf": 6}]}, ["24"], ["8"]),
    ],
)
def test_multiples_are_those_that_the_decimals_say(
    schema: dict[str, Any], valid: list[str], invalid: list[str]
) -> None:
    assert accepted(schema, *valid, *invalid) == [True] * len(valid) + [False] * len(invalid)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 3600},
        {"type": "integer", "multipleOf": 3600, "minimum": 0, "maximum": 3600 * MAX_LISTED},
        {"allOf": [{"multipleOf": 359}, {"multipleOf": 353}, {"multipleOf": 349}]},
    ],
)
def test_multiples_that_take_too_many_states_are_refused_or_ignored(schema: dict[str, Any]) -> None:
    assert "multipleOf" in refusal(schema)[1]
    assert of_json_schema(schema, FIELD, strict=False)


# ---- names and lists


@pytest.mark.parametrize("more", [{}, {"additionalProperties": True}, {"patternProperties": {"^b": {}}}])
def test_a_name_spelled_otherwise_is_no_other_name(more: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, **more}
    assert accepted(schema, '{"a": 1, "c": "x"}', '{"a": 1, "\\u0061": "x"}') == [True, False]


def test_control_characters_can_be_written_where_no_name_can_be_taken_twice() -> None:
    closed = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    assert accepted(closed, '{"a": "\\u001b[31m"}') == [True]
    assert accepted({"type": "object"}, '{"a": "\\u001b[31m"}') == [True]
    assert refusal({"properties": {"a": {"const": "\x01"}}})[0] == ".properties.a"


def test_two_other_properties_cannot_be_asked_for_since_one_may_be_written_twice() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2}
    assert "minProperties" in refusal(schema)[1]
    assert accepted({**schema, "minProperties": 1}, "{}", '{"a": 1}') == [False, True]


def test_old_lists_end_where_they_say_whatever_stands_between() -> None:
    schema = {"type": "array", "items": [{"type": "integer"}], "allOf": [{}], "additionalItems": False}
    assert accepted(schema, "[1]", "[1, 2]") == [True, False]


def test_a_date_that_follows_a_pattern_exists_too() -> None:
    schema = {"type": "string", "format": "date", "pattern": "^2023"}
    assert accepted(schema, '"2023-02-28"', '"2023-02-29"', '"2024-02-28"') == [True, False, False]


@pytest.mark.parametrize("values", [["a", "b", "c"], [1, "1", None, True], list(range(5))])
def test_items_of_few_values_differ(values: list[Any]) -> None:
    schema = {
        "type": "array",
        "items": {"$ref": "#/$defs/value"},
        "uniqueItems": True,
        "$defs": {"value": {"enum": values}},
    }
    lists = [list(some) for length in range(len(values) + 1) for some in permutations(values, length)][:90]
    assert all(accepted(schema, *map(json.dumps, lists)))
    assert accepted(schema, json.dumps([values[0], values[0]]), json.dumps([*values, values[1]])) == [False, False]


def test_lists_of_many_values_may_repeat_some_only_if_that_is_not_strict() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    assert "uniqueItems" in refusal({"items": schema})[1]
    assert refusal({"items": schema})[0] == ".items"
    assert agrees(of_json_schema(schema, FIELD, strict=False), '["a", "a"]')
    assert accepted({**schema, "maxItems": 1}, '["a"]') == [True]


# ---- unions


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog", "wolf"]
    friend: Pet | None = None


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Owner(pydantic.BaseModel):
    pet: Pet
    colours: set[Colour]


def test_a_union_as_pydantic_writes_it_is_held_strictly() -> None:
    cat, dog = '{"kind": "cat", "lives": 9}', '{"kind": "wolf", "friend": {"kind": "cat", "lives": 1}}'
    schema = Owner.model_json_schema()
    texts = [f'{{"pet": {pet}, "colours": ["blue", "red"]}}' for pet in (cat, dog, '{"kind": "dog", "lives": 9}')]
    # a dog may have further properties, such as lives
    assert accepted(schema, *texts, texts[0].replace("red", "blue")) == [True, True, True, False]
    assert all(Owner.model_validate_json(text) for text in texts)


@pytest.mark.parametrize(
    ("options", "apart"),
    [
        ([{"type": "string"}, {"type": "null"}], True),
        ([{"type": "integer", "maximum": 3}, {"type": "number", "minimum": 3.5}], True),
        ([{"const": 1}, {"enum": [2, "1"]}], True),
        ([{"type": "array", "prefixItems": [{"const": n}], "minItems": 1} for n in (1, 2)], True),
        ([{"type": "object", "properties": {"k": {"const": n}}, "required": ["k"]} for n in range(150)], True),
        (
            [{"type": "object", "required": [n], "properties": {n: {}}, "additionalProperties": False} for n in "ab"],
            True,
        ),
        ([{"allOf": [{"required": ["k"]}, {"type": "object", "properties": {"k": {"const": n}}}]} for n in "ab"], True),
        ([{"type": "integer"}, {"type": "number"}], False),
        ([{"const": 1}, {"const": 1.0}], False),
        ([{"type": "object", "properties": {"k": {"const": n}}} for n in "ab"], False),
        ([{"type": "object", "required": [n]} for n in "ab"], False),
    ],
)
def test_one_of_schemas_apart_is_any_of_them(options: list[dict[str, Any]], apart: bool) -> None:
    if apart:
        assert of_json_schema({"oneOf": options}, FIELD)
    else:
        path, complaint = refusal({"properties": {"a": {"oneOf": options}}})
        assert path == ".properties.a"
        assert "'anyOf'" in complaint
    assert of_json_schema({"oneOf": options}, FIELD, strict=False)


# ---- schemas without an answer

TREE = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"$ref": "#"}}}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"$ref": "#"}, ""),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, ".$defs.a"),
        ({**TREE, "required": ["b"]}, ".properties.b"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, ".items"),
        (
            {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "items": {"$ref": "#/$defs/a"}},
            ".$defs.a",
        ),
        ({"type": "object", "required": ["a", "z"], "properties": {"a": {}}, "additionalProperties": False}, ""),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, ".properties.a"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_schema_without_an_answer_that_ends_is_refused(schema: dict[str, Any], path: str, strict: bool) -> None:
    found, complaint = refusal(schema, strict)
    assert found == path
    assert not JARGON.search(complaint)


def test_what_never_ends_is_left_out_where_it_may_be() -> None:
    endless = {"type": "object", "properties": {"c": {"$ref": "#/$defs/x"}}, "required": ["c"]}
    schema = {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"$ref": "#/$defs/x"}},
        "$defs": {"x": endless},
    }
    assert accepted(schema, '{"a": null}', '{"a": null, "b": {}}') == [True, False]
    assert accepted({**TREE, "required": ["a"]}, '{"a": null, "b": {"a": null}}') == [True]


@pytest.mark.parametrize("number", [100, 3000])
def test_references_are_followed_only_as_deep_as_the_engine_can(number: int) -> None:
    chain = {f"d{n}": {"type": "object", "properties": {"n": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(number)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{number}": {"type": "null"}}}
    if number < MAX_REACH / 2:
        assert of_json_schema(schema, FIELD)
    else:
        assert f"more than {MAX_REACH}" in refusal(schema)[1]


@pytest.mark.parametrize(
    "reference",
    ["#/components/schemas/x", "#here", "http://host/root#/components/schemas/x", "part", "#/%63omponents/schemas/x"],
)
def test_a_reference_may_lead_anywhere_in_the_schema(reference: str) -> None:
    held = {"x": {"type": "string", "pattern": r"^\d$", "$anchor": "here"}}
    parts = {"part": {"$id": "part", "type": "string", "pattern": r"^\d$"}}
    anchored = {"anchored": {"type": "string", "pattern": r"^\d$", "$anchor": "here"}}
    schema = {
        "$id": "http://host/root",
        "components": {"schemas": held},
        "$defs": {**parts, **anchored},
        "$ref": reference,
    }
    assert accepted(schema, '"1"', '"a"') == [True, False]


# ---- words

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "not": ({"properties": {"a": {"not": {"type": "null"}}}}, ".properties.a"),
    "contains": ({"items": {"type": "array", "contains": {}}}, ".items"),
    "if": ({"anyOf": [{"type": "null"}, {"if": {}, "then": {}}]}, ".anyOf[1]"),
    "format": ({"properties": {"a": {"type": "string", "format": "int32"}}}, ".properties.a"),
    "look-ahead": ({"items": {"type": "string", "pattern": "^(?=a)"}}, ".items"),
    "word boundary": ({"items": {"type": "string", "pattern": r"\bword"}}, ".items"),
    "anchor within": ({"items": {"pattern": "a^b"}}, ".items"),
    "back-reference": ({"items": {"pattern": r"(a)\1"}}, ".items"),
    "repetition": ({"items": {"pattern": "(a{1000}){1000}"}}, ".items"),
    "two patterns": ({"properties": {"a": {"patternProperties": {"^a": {}, "a$": {}}}}}, ".properties.a"),
    "unknown reference": ({"properties": {"a": {"$ref": "#/$defs/b"}}}, ".properties.a"),
    "reference elsewhere": ({"items": {"$ref": "https://example.org/schema"}}, ".items"),
    "pattern against values": ({"type": "array", "items": {"enum": ["a"], "pattern": "b"}, "minItems": 1}, ".items"),
    "counts": ({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1}, ""),
    "too many choices": ({"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(1500)}}, ""),
    "too large": ({"allOf": [{"anyOf": [{"pattern": f"^{a}{n}"} for a in "abcdefghij"]} for n in range(6)]}, ""),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_refusal_names_the_path_and_speaks_no_jargon(kind: str) -> None:
    schema, path = BAD[kind]
    found, complaint = refusal(schema)
    assert found == path
    assert not JARGON.search(complaint)
    assert len(complaint) < 400


WELL_FORMED = [("pattern", "a"), ("minLength", 5), ("minimum", 5), ("items", {"a": 5})]


@pytest.mark.parametrize("value", [5, "a", None, ["a"], {"a": 5}])
@pytest.mark.parametrize("keyword", ["type", "properties", "items", "anyOf", "pattern", "$ref", "minLength", "minimum"])
def test_values_of_the_wrong_type_are_refused(keyword: str, value: Any) -> None:
    schema = {"items": {keyword: value}}
    if (keyword, value) in WELL_FORMED:
        assert of_json_schema(schema, FIELD)
    else:
        path, complaint = refusal(schema)
        assert path.startswith(".items")
        assert not JARGON.search(complaint)


@pytest.mark.parametrize(
    "lark", ["start: nothing", 'start: "a', 'start: a\na: a "x"', "", "root ::= (", 'start: "x" a\na: "y" a']
)
def test_grammars_and_expressions_are_refused_without_jargon(lark: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        of_lark(lark, "guided_grammar")
    assert not JARGON.search(str(refused.value).replace("lexer error", ""))
    with pytest.raises(InvalidRequest, match="repeats"):
        of_regex("(a{1000}){1000}", "guided_regex")


def test_options_of_the_engine_are_no_part_of_a_schema() -> None:
    schema = {"type": "array", "items": {"type": "null"}, "x-guidance": {"item_separator": ";", "lenient": True}}
    assert accepted(schema, "[null, null]", "[null;null]") == [True, False]
    assert "x-guidance" not in json.dumps(engine_schema({"properties": {"a": {"x-guidance": 5}}}, FIELD)["properties"])


# ---- patterns


@pytest.mark.parametrize(
    ("pattern", "valid", "invalid"),
    [
        (r"^[^\d]$", ["a"], ["1", "٣"]),
        (r"^\D$", ["a"], ["٣"]),
        (r"^\W$", ["-"], ["²", "a"]),
        (r"^\S$", ["é"], ["\u0085", "\ufeff", "\x1c"]),
        (r"^\s$", [" ", "\t"], ["\u0085"]),
        (r"^.$", ["a"], ["\n", "\r", "\u2028"]),
        (r"^[a&&b]$", ["&", "a"], ["c"]),
        (r"^[[a]$", ["[", "a"], ["b"]),
        (r"^[\w.-]+$", ["a.b-c"], ["a b"]),
        (r"^a{2}{$", ["aa{"], ["aa"]),
        (r"^\/\u00e9\x41\ud83d\ude00$", ["/éA😀"], ["/éA"]),
        ("^a|b$", ["ax", "xb"], ["xa"]),
        ("[0-9]", ["a1b"], ["ab"]),
    ],
)
def test_a_pattern_means_what_all_its_readers_take_it_for(pattern: str, valid: list[str], invalid: list[str]) -> None:
    found = accepted({"type": "string", "pattern": pattern}, *map(_quoted, valid + invalid))
    assert found == [True] * len(valid) + [False] * len(invalid)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@pytest.mark.parametrize("pattern", ["[]a]", "a{,3}", "a++", r"\Z", "[a", "a\\", r"\i", "("])
def test_a_pattern_that_is_read_differently_is_refused(pattern: str) -> None:
    assert refusal({"properties": {"a": {"pattern": pattern}}})[0] == ".properties.a"
