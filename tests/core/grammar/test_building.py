"""Grammars from what clients send, and where they are told that a schema cannot be enforced."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from llguidance import gbnf_to_lark

from core.errors import InvalidRequest
from core.grammar import building, trial
from core.grammar.building import MAX_GRAMMAR, of_choice, of_json_object, of_json_schema, of_lark, of_regex
from core.grammar.matching import Grammars
from core.model_names import locate
from core.text.tokenizer import Tokenizer, load_tokenizer

FIELD = "response_format.json_schema.schema"


@cache
def tokenizer() -> Tokenizer:
    return load_tokenizer(locate("family:target"))


@cache
def grammars() -> Grammars:
    return Grammars(tokenizer())


def agrees(grammar: str, text: str) -> bool:
    """Whether the text is a whole answer: all of it is allowed, and so is its end."""
    state, ids = grammars().begin(grammar), tokenizer().encode_answer(text)
    if state.valid(ids) < len(ids):
        return False
    state.advance(ids)
    return bool(state.allowed(())[0, tokenizer().eos_ids[0]])


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_json_is_written_as_python_writes_it() -> None:
    grammar = of_json_schema(PERSON, FIELD)
    person = {"name": "Ann", "age": 30}
    assert agrees(grammar, json.dumps(person))
    assert not agrees(grammar, json.dumps(person, separators=(",", ":")))
    assert not agrees(grammar, json.dumps({"name": "Ann"}))
    assert not agrees(grammar, json.dumps({"name": "Ann", "age": "30"}))


def test_other_spaces_are_allowed_where_a_pattern_says_so() -> None:
    grammar = of_json_schema(PERSON, FIELD, whitespace="[ \\n]*")
    person = {"name": "Ann", "age": 30}
    assert agrees(grammar, json.dumps(person, indent=2))
    assert agrees(grammar, json.dumps(person, separators=(",", ":")))
    assert not agrees(grammar, '{"name":\t"Ann", "age": 30}')


def test_any_object_is_an_object() -> None:
    grammar = of_json_object("response_format")
    assert agrees(grammar, '{"a": [1, {"b": null}]}')
    assert not agrees(grammar, '["a"]')


def test_choices_expressions_and_grammars() -> None:
    choice = of_choice(["yes", 'a "no"'], "guided_choice")
    assert agrees(choice, "yes")
    assert agrees(choice, 'a "no"')
    assert not agrees(choice, "a")
    assert agrees(of_regex("[a-c]{2}/[0-9]+", "guided_regex"), "ab/12")
    assert not agrees(of_regex("[a-c]{2}/[0-9]+", "guided_regex"), "ab/")
    assert agrees(of_lark('start: "(" start ")" | "x"', "guided_grammar"), "((x))")
    assert agrees(of_lark('root ::= "(" root ")" | "x"', "guided_grammar"), "((x))")


@pytest.mark.parametrize(
    ("schema", "path", "said"),
    [
        ({"type": "objct"}, "", "objct"),
        ({"properties": {"a": {"items": {"type": "strng"}}}}, ".properties.a.items", "strng"),
        ({"anyOf": [{"type": "null"}, {"type": "string", "pattern": "("}]}, ".anyOf[1]", "unclosed group"),
        ({"$defs": {"b": {"type": 3}}, "properties": {"a": {"$ref": "#/$defs/b"}}}, ".$defs.b", "type must be"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, ".properties.a", "nowhere"),
        ({"properties": {"a": {"not": {}}}}, ".properties.a", "not"),
        (
            {"items": {"type": "integer", "minimum": 3, "maximum": 2}, "minItems": 1, "type": "array"},
            ".items",
            "minimum",
        ),
    ],
)
def test_the_path_in_a_schema_that_is_at_fault_is_named(schema: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as refused:
        of_json_schema(schema, FIELD)
    assert refused.value.field == FIELD + path
    assert "\n" not in str(refused.value)


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the grammars that are compiled from now on."""
    lengths: list[int] = []
    tried = trial.complaint

    def counted(grammar: str) -> str:
        lengths.append(len(grammar))
        return tried(grammar)

    monkeypatch.setattr(building, "complaint", counted)
    return lengths


@pytest.mark.parametrize("number", [3, 300])
def test_the_search_for_a_fault_compiles_a_large_schema_only_a_few_times(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = compiled(monkeypatch)
    shared = {f"d{n}": {"type": "object", "properties": {"x": {"type": "string"}}} for n in range(number)}
    listed = {f"p{n}": {"$ref": f"#/$defs/d{n}"} for n in range(number)}
    wrong = {"type": "string", "pattern": "a^b"}
    schema = {"$defs": shared, "type": "object", "properties": {**listed, "wrong": wrong}}
    with pytest.raises(InvalidRequest, match="begins") as refused:
        of_json_schema(schema, FIELD)
    assert refused.value.field == FIELD + (".properties.wrong" if number == 3 else "")
    assert sum(lengths) < 3 * MAX_GRAMMAR


def test_a_fault_behind_hundreds_of_properties_is_found() -> None:
    listed = {f"p{n}": {"type": "string"} for n in range(600)}
    with pytest.raises(InvalidRequest) as refused:
        of_json_schema({"type": "object", "properties": {**listed, "wrong": {"type": "strng"}}}, FIELD)
    assert refused.value.field == f"{FIELD}.properties.wrong"


@pytest.mark.parametrize("value", [10**400, "\ud800"])
def test_a_value_that_no_grammar_can_hold_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="no grammar can hold") as refused:
        of_json_schema({"const": value}, FIELD)
    assert (refused.value.field, len(str(refused.value)) < 400) == (FIELD, True)


@pytest.mark.parametrize("depth", [150, 5000])
def test_a_schema_nested_too_deeply_is_refused(depth: int) -> None:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    with pytest.raises(InvalidRequest, match="nested"):
        of_json_schema(schema, FIELD)


@pytest.mark.parametrize("choice", ["a\0b", "\x7f", "\n", "\x85\u2028", "\\u007f", "🙂"])
def test_a_choice_may_have_any_character(choice: str) -> None:
    assert agrees(of_choice([choice, "no"], "guided_choice"), choice)


def test_a_grammar_is_converted_only_if_it_is_short_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gbnf_to_lark, "any_to_lark", lambda _: pytest.fail("converted"))
    with pytest.raises(InvalidRequest, match="at most"):
        of_lark("root ::= " + '"a" ' * MAX_GRAMMAR, "guided_grammar")


def test_keywords_that_cannot_be_enforced_are_ignored_if_that_is_asked_for() -> None:
    schema = {"type": "string", "not": {"const": "x"}}
    assert agrees(of_json_schema(schema, FIELD, strict=False), '"x"')


@pytest.mark.parametrize(
    "build",
    [
        lambda: of_regex("(", "guided"),
        lambda: of_choice([], "guided"),
        lambda: of_choice(["a", ""], "guided"),
        lambda: of_lark("start: nothing", "guided"),
        lambda: of_lark("root ::= (", "guided"),
        lambda: of_regex("a" * 300_000, "guided"),
        lambda: of_json_schema({"enum": ["a" * 300_000]}, "guided"),
    ],
)
def test_a_bad_grammar_names_its_field(build: Callable[[], str]) -> None:
    with pytest.raises(InvalidRequest, match="'guided'") as refused:
        build()
    assert refused.value.field == "guided"
