"""What clients ask an answer to be, as the grammar that the verifier gets."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from core.grammar import building, trial
from core.grammar.matching import Grammars
from serve_app.http.schema.structured import INLINE_CHARACTERS
from tests.serve_app.clients import http_client
from tests.serve_app.scripted import EOS_ID, ScriptedService, tokens_of, toy_tokenizer

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
JSON, OTHER_JSON = '{"a": 12}', '{"b": 12}'
SCHEMA_OF_FORMAT = "response_format.json_schema.schema"
LARK, GBNF = 'start: "yes" | "no"', 'root ::= "yes" | "no"'
ASKED: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": {"type": "json_object"}}, OTHER_JSON, "[1]"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, JSON, OTHER_JSON),
    ({"guided_json": SCHEMA}, JSON, OTHER_JSON),
    ({"guided_json": '{"type": "integer"}'}, "12", JSON),
    ({"guided_json": SCHEMA, "guided_whitespace_pattern": "[ ]*"}, '{ "a":12}', '{\n"a":12}'),
    ({"guided_regex": "[ab]{2}"}, "ab", "abc"),
    ({"guided_choice": ["yes", "no"]}, "no", "maybe"),
    ({"guided_grammar": LARK}, "yes", "maybe"),
    ({"guided_grammar": GBNF}, "yes", "maybe"),
    ({"structured_outputs": {"json": SCHEMA}}, JSON, OTHER_JSON),
    ({"structured_outputs": {"json_object": True, "whitespace_pattern": ""}}, '{"b":1}', OTHER_JSON),
    ({"structured_outputs": {"regex": "[ab]{2}"}}, "ab", "a"),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, "no", "maybe"),
    ({"structured_outputs": {"grammar": LARK}}, "yes", "maybe"),
]
ENDPOINTS = {
    "/v1/completions": {"prompt": "the"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "the"}]},
}


async def asked_for(path: str, **fields: Any) -> Any:
    """The request that the service behind gets."""
    service = ScriptedService()
    async with http_client(service) as client:
        response = await client.post(path, json={"model": "org/toy", "max_tokens": 8, **ENDPOINTS[path], **fields})
    assert response.status_code == 200, response.text
    return service.asked[0]


def agrees(grammar: str, text: str) -> bool:
    state, ids = Grammars(toy_tokenizer()).begin(grammar), tokens_of(text)
    if state.valid(ids) < len(ids):
        return False
    state.advance(ids)
    return bool(state.allowed(())[0, EOS_ID])


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("fields", "agreeing", "other"), ASKED)
async def test_every_way_to_ask_is_a_grammar(path: str, fields: dict[str, Any], agreeing: str, other: str) -> None:
    grammar = (await asked_for(path, **fields)).params.grammar
    assert agrees(grammar, agreeing)
    assert not agrees(grammar, other)


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_text_is_no_grammar(path: str) -> None:
    assert (await asked_for(path, response_format={"type": "text"})).params.grammar == ""


@pytest.mark.parametrize("nothing", [{"response_format": {"type": "text"}}, {"structured_outputs": {}}])
@pytest.mark.parametrize("asking", [{"guided_json": SCHEMA}, {"structured_outputs": {"json": SCHEMA}}])
async def test_a_field_that_asks_for_nothing_hides_none_that_asks(
    nothing: dict[str, Any], asking: dict[str, Any]
) -> None:
    grammar = (await asked_for("/v1/completions", **nothing | asking)).params.grammar
    assert agrees(grammar, JSON)
    assert not agrees(grammar, OTHER_JSON)


BIG = 10**400
DEEP = '{"items": ' * 900 + "{}" + "}" * 900


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_json": {}, "guided_whitespace_pattern": "("}, "guided_whitespace_pattern"),
        (
            {"structured_outputs": {"json": {"type": "strng"}, "whitespace_pattern": "(?<=a)"}},
            "structured_outputs.whitespace_pattern",
        ),
        (
            {"structured_outputs": {"json_object": True, "whitespace_pattern": "("}},
            "structured_outputs.whitespace_pattern",
        ),
        (
            {"guided_json": {"properties": {"a": {"type": "strng"}}}, "guided_whitespace_pattern": " "},
            "guided_json.properties.a",
        ),
        ({"guided_json": {"const": BIG}}, "guided_json"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": BIG}}}}, SCHEMA_OF_FORMAT),
        ({"guided_json": '{"const": "\\ud800"}'}, "guided_json"),
        ({"guided_json": DEEP}, "guided_json"),
        ({"guided_json": "[]"}, "guided_json"),
        ({"guided_json": SCHEMA, "guided_regex": "a"}, "guided_regex"),
        ({"guided_json": SCHEMA, "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
async def test_a_fault_is_told_of_the_field_that_has_it(fields: dict[str, Any], param: str) -> None:
    async with http_client(ScriptedService()) as client:
        response = await client.post("/v1/completions", json={"model": "org/toy", "prompt": "the", **fields})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


LONG = "a" * INLINE_CHARACTERS


@pytest.mark.parametrize(
    "given",
    [
        {"guided_regex": LONG},
        {"guided_choice": [LONG[:1000] + letter for letter in "abc"]},
        {"guided_grammar": f'start: "{LONG}"'},
        {"guided_grammar": f'root ::= "{LONG}"'},
        {"guided_json": {"const": LONG}},
        {"guided_json": {}, "guided_whitespace_pattern": LONG},
        {"structured_outputs": {"regex": LONG}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": LONG}}}},
    ],
)
async def test_what_takes_long_to_compile_is_compiled_in_a_thread(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, threads = trial.complaint, set[int]()

    def watched(grammar: str) -> str:
        threads.add(threading.get_ident())
        return tried(grammar)

    monkeypatch.setattr(building, "complaint", watched)
    await asked_for("/v1/completions", guided_regex="a")
    assert threads == {threading.get_ident()}
    threads.clear()
    await asked_for("/v1/completions", **given)
    assert threads
    assert threading.get_ident() not in threads


async def test_what_cannot_be_enforced_is_ignored_unless_it_is_to_be_strict() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "not": {"const": "x"}}}}
    form: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    loose = await asked_for("/v1/completions", response_format=form)
    assert agrees(loose.params.grammar, '{"a": "x"}')
    form["json_schema"]["strict"] = True
    async with http_client(ScriptedService()) as client:
        body = {"model": "org/toy", "prompt": "the", "response_format": form}
        response = await client.post("/v1/completions", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "response_format.json_schema.schema.properties.a")


async def test_how_an_answer_goes_on_and_ends_reaches_the_verifier() -> None:
    fields = {"repetition_penalty": 1.5, "min_tokens": 3, "ignore_eos": True, "stop_token_ids": [7], "stop": ["a"] * 32}
    params = (await asked_for("/v1/completions", **fields)).params
    assert (params.repetition_penalty, params.min_tokens, params.ignore_eos) == (1.5, 3, True)
    assert (params.stop_ids, params.stop) == ((7,), ("a",) * 32)
