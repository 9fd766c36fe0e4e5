"""The page that lists the API says what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.api.tokenizing import TokenizeRequest
from serve_app.http.schema.fields import Fields
from serve_app.http.schema.requests import ChatRequest, CompletionRequest
from serve_app.protocols.anthropic.requests import MessagesRequest
from serve_app.protocols.responses.requests import ResponsesRequest
from tests.serve_app.api.api_page import SUPPORTED, api_page, entries, nested_objects
from tests.serve_app.clients import http_client
from tests.serve_app.scripted import ScriptedService

PAGE = Path(__file__).parents[3] / "serve_app" / "API.md"
BODIES: dict[str, dict[str, Any]] = {
    "completions": {"model": "org/toy", "prompt": "the answer"},
    "chat/completions": {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}]},
    "responses": {"model": "org/toy", "input": "the answer"},
}


def rows() -> list[list[str]]:
    """Cells of the table of fields: endpoints, fields, kind, description."""
    table = PAGE.read_text().partition("## Fields")[2]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def fields(endpoint: str, kind: str) -> list[str]:
    """The fields of a body itself, not those of the objects in it."""
    found = [row[1] for row in rows() if f"`{endpoint}`" in row[0].split(", ") and row[2] == kind]
    return [name for cell in found for name in re.findall(r"(?:^|, )`(\w+)`", cell)]


def test_the_page_is_what_the_code_gives() -> None:
    again = "write it again: python -m tests.serve_app.api.api_page > serve_app/API.md"
    assert PAGE.read_text() == api_page(), again


def test_the_command_prints_it() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "tests.serve_app.api.api_page"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == api_page()


async def test_every_endpoint_that_is_served_is_listed_and_no_other() -> None:
    async with http_client(ScriptedService()) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    served = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    served = {one.replace("{model:path}", "{model}") for one in served} - {"GET /healthz"}
    listed = {line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith(("| `GET", "| `POST"))}
    assert listed == served


def objects(body: type[Fields]) -> Iterator[type[Fields]]:
    """A body and all objects in it."""
    yield body
    for field in body.model_fields.values():
        for nested, _ in nested_objects(field.annotation):
            yield from objects(nested)


@pytest.mark.parametrize("body", [CompletionRequest, ChatRequest, ResponsesRequest, MessagesRequest, TokenizeRequest])
def test_every_supported_field_is_taken_by_its_name_in_the_table(body: type[Fields]) -> None:
    for model in objects(body):
        for entry in entries(model):
            if entry.kind == SUPPORTED and "." not in entry.field:
                with pytest.raises(ValidationError) as faults:
                    model.model_validate({entry.field: object()})
                assert not [fault for fault in faults.value.errors() if "unknown field" in fault["msg"]]


def test_fields_are_named_as_clients_write_them() -> None:
    names = {name for row in rows() for name in re.findall(r"`([^`]+)`", row[1])}
    assert {"response_format.json_schema.schema", "structured_outputs.json"} <= names
    assert not {name for name in names if name.endswith("_")}


@pytest.mark.parametrize("endpoint", BODIES)
async def test_ignored_fields_change_nothing_and_refused_ones_are_named(endpoint: str) -> None:
    ignored, refused = fields(endpoint, "ignored"), fields(endpoint, "refused")
    assert ignored
    assert refused
    async with http_client(ScriptedService()) as client:
        for name in ignored:
            answer = await client.post(f"/v1/{endpoint}", json=BODIES[endpoint] | {name: "anything"})
            assert answer.status_code == 200, (name, answer.text)
        for name in refused:
            answer = await client.post(f"/v1/{endpoint}", json=BODIES[endpoint] | {name: {"much": "wanted"}})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
            assert (await client.post(f"/v1/{endpoint}", json=BODIES[endpoint] | {name: None})).status_code == 200


async def test_supported_fields_are_those_of_the_schema() -> None:
    async with http_client(ScriptedService()) as client:
        page = (await client.get("/openapi.json")).json()
    for endpoint in BODIES:
        content = page["paths"][f"/v1/{endpoint}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        properties = set(page["components"]["schemas"][content["$ref"].rpartition("/")[2]]["properties"])
        assert set(fields(endpoint, "supported")) | set(fields(endpoint, "ignored")) == properties
