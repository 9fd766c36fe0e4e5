"""A schema that cannot be used is refused before anything is computed, in the client's names of its fields."""

from __future__ import annotations

import re
from typing import Any

import pytest

from core.errors import InvalidRequest
from tests.serve_app.clients import http_client
from tests.serve_app.http.schema.test_tools import service as tool_service
from tests.serve_app.scripted import ScriptedService

USER = {"role": "user", "content": "the weather"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "the"},
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/responses": {"input": "the"},
    "/v1/messages": {"messages": [USER], "max_tokens": 8},
}
JARGON = re.compile(r"NoExtension|ff_tokens|coerce|lexer error|Parser Error|Unimplemented|non-verbose|'grammar'")
INNER = {"type": "object", "properties": {"b": {"$ref": "#/properties/a"}}, "required": ["b"]}
SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "endless": ({"type": "object", "properties": {"a": INNER}, "required": ["a"]}, ".properties.a.properties.b"),
    "in a circle": ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, ".properties.a"),
    "union": ({"type": "object", "properties": {"a": {"oneOf": [{"minimum": 1}, {"minimum": 2}]}}}, ".properties.a"),
    "keyword": ({"type": "object", "properties": {"a": {"not": {}}}}, ".properties.a"),
    "pattern": ({"type": "object", "properties": {"a": {"pattern": "(?=a)"}}}, ".properties.a"),
    "bound": ({"type": "object", "properties": {"a": {"minimum": 1e40}}}, ".properties.a"),
    "constant": ({"type": "object", "properties": {"a": {"const": 2**53 + 1}}}, ".properties.a"),
}


def _function(schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": "f", "parameters": schema, "strict": True}


def asking(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    """Every way to send a schema strictly: the endpoint, its fields, and the client's name of what has the schema."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    format_, tool = {"type": "json_schema", "schema": schema}, {"name": "f", "input_schema": schema, "strict": True}
    named = {"name": "x", "strict": True}
    completions, chat, responses, messages = BODIES
    return [
        (completions, {"guided_json": schema}, "guided_json"),
        (chat, {"structured_outputs": {"json": schema}}, "structured_outputs.json"),
        (chat, {"response_format": form}, "response_format.json_schema.schema"),
        (chat, {"tools": [{"type": "function", "function": _function(schema)}]}, "tools[0].function.parameters"),
        (responses, {"text": {"format": {**format_, **named}}}, "text.format.schema"),
        (responses, {"tools": [{"type": "function", **_function(schema)}]}, "tools[0].parameters"),
        (messages, {"tools": [tool]}, "tools[0].input_schema"),
    ]


async def refused(path: str, fields: dict[str, Any], asked: ScriptedService) -> dict[str, Any]:
    async with http_client(asked) as client:
        response = await client.post(path, json={"model": "org/toy", **BODIES[path], **fields})
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


@pytest.mark.parametrize("kind", SCHEMAS)
async def test_every_field_that_takes_a_schema_is_named_with_the_path(kind: str) -> None:
    schema, path = SCHEMAS[kind]
    for endpoint, fields, field in asking(schema):
        asked = tool_service("the answer")
        error = await refused(endpoint, fields, asked)
        assert error.get("param", field + path) == field + path
        assert f"'{field}{path}': " in error["message"], error
        assert not JARGON.search(error["message"])
        assert not asked.asked


async def test_anthropics_format_is_named_too() -> None:
    schema, path = SCHEMAS["endless"]
    fields = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    error = await refused("/v1/messages", fields, tool_service("the answer"))
    assert f"'output_config.format.schema{path}': " in error["message"]


ANY = {"type": "json_schema", "schema": {}}
LATE: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/completions", {"guided_regex": "a*"}, "guided_regex"),
    ("/v1/chat/completions", {"guided_choice": ["a"]}, "guided_choice"),
    ("/v1/chat/completions", {"response_format": {"type": "json_object"}}, "response_format"),
    ("/v1/responses", {"text": {"format": {"type": "json_object"}}}, "text.format"),
    (
        "/v1/messages",
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        "output_config.format.schema",
    ),
]


@pytest.mark.parametrize(("path", "fields", "field"), LATE)
async def test_what_the_verifier_says_of_a_grammar_is_told_of_its_field(
    path: str, fields: dict[str, Any], field: str
) -> None:
    service: ScriptedService = tool_service("the answer")
    service.failure = InvalidRequest("grammar", "this grammar cannot be used: it is too large")
    error = await refused(path, fields, service)
    assert error.get("param", field) == field
    assert error["message"] == f"'{field}': this grammar cannot be used: it is too large"
