"""What /v1/messages refuses, in Anthropic's form, by the client's own name of the field."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.http.body import MAX_BODY_BYTES
from serve_app.http.service import Overloaded
from serve_app.protocols.anthropic.requests import MessagesRequest
from tests.examples import examples
from tests.serve_app.clients import JSON, http_client
from tests.serve_app.scripted import ScriptedService

USER = {"role": "user", "content": "the answer"}
BODY = {"model": "org/toy", "max_tokens": 9, "messages": [USER]}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def said(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(blocks)}]}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("messages", {"messages": None}, "required"),
    ("messages", {"messages": []}, "at least 1 item"),
    ("messages", {"messages": "hello"}, "list"),
    ("messages[0].role", {"messages": [{"role": "tool", "content": "a"}]}, "'assistant'"),
    ("messages[0].content", {"messages": [{"role": "user", "content": 3}]}, "a string or a list of blocks"),
    ("messages[0].content[0]", said({"type": "image", "source": {}}), "blocks of type 'image' are not supported"),
    ("messages[0].content[0]", said({"type": "document", "source": {}}), "takes text, thinking"),
    ("messages[0].content[0].text", said({"type": "text"}), "required"),
    ("messages[0].content[1].type", said({"type": "text", "text": "a"}, USE), "not tool_use"),
    ("messages[0].content[0].input", said({**USE, "input": "{}"}, role="assistant"), "dictionary"),
    ("messages[0].content[0].tool_use_id", said({"type": "tool_result"}), "required"),
    (
        "messages[0].content[0].content[0]",
        said({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}),
        "blocks of type 'image' are not supported",
    ),
    ("messages", {"messages": [{"role": "user", "content": "refuse me"}]}, "this template will not have it"),
    ("messages", {"messages": [{"role": "user", "content": "word " * 300}]}, "the context of 256"),
    ("system[0]", {"system": [{"type": "image"}]}, "blocks of type 'image' are not supported"),
    ("tools[0]", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'web_search_20250305' are not"),
    ("tools[0].input_schema", {"tools": [{"name": "f"}]}, "required"),
    ("tool_choice.type", {"tools": [TOOL], "tool_choice": {"type": "required"}}, "'any'"),
    ("tool_choice.name", {"tools": [TOOL], "tool_choice": {"type": "tool"}}, "needs the name"),
    ("thinking.type", {"thinking": {"type": "often"}}, "'enabled'"),
    ("stop_sequences", {"stop_sequences": [str(number) for number in range(33)]}, "at most 32"),
    ("stop_sequences[0]", {"stop_sequences": [""]}, "at least 1 character"),
    ("temperature", {"temperature": 3.0}, "less than or equal to 2"),
    ("container", {"container": "c"}, "not supported"),
    ("compaction", {"compaction": {"type": "summarize"}}, "not supported"),
    ("thread", {"thread": {"type": "create"}}, "not supported"),
    ("output_config.effort", {"output_config": {"effort": "huge"}}, "'high'"),
    ("messages[0].content", {"messages": [{"role": "user", "content": []}]}, "a list of blocks that is not empty"),
    ("messages[0].content", {"messages": [{"role": "system", "content": []}]}, "a list of blocks that is not empty"),
    ("mcp_servers", {"mcp_servers": [{"url": "http://a"}]}, "not supported"),
    ("output_config.format", {"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
    ("max_token", {"max_token": 9}, "the nearest known one is 'max_tokens'"),
    ("speculation.task", {"speculation": {"task": "maths"}}, "the nearest known one is 'math'"),
]
ONLY_ANSWERED = [
    ("max_tokens", {"max_tokens": None}, "required"),
    ("max_tokens", {"max_tokens": 0}, "greater than or equal to 1"),
]
NOT_COUNTED = {"stop_sequences", "temperature", "speculation"}


def fault(response: Any) -> dict[str, Any]:
    body = response.json()
    assert body.keys() == {"type", "error"}
    assert body["type"] == "error"
    assert body["error"].keys() == {"type", "message"}
    return dict(body["error"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("field", "fields", "message"), REFUSED + ONLY_ANSWERED)
async def test_the_field_at_fault_is_named(field: str, fields: dict[str, Any], message: str, stream: bool) -> None:
    service = ScriptedService()
    async with http_client(service) as client:
        response = await client.post("/v1/messages", json={**BODY, **fields, "stream": stream})
    error = fault(response)
    assert response.status_code == 400, error
    assert error["type"] == "invalid_request_error"
    assert field in error["message"]
    assert message in error["message"]
    assert not service.asked


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        case[:2]
        for case in REFUSED
        if case[0].split("[")[0].split(".")[0] not in NOT_COUNTED and "context" not in case[2]
    ],
)
async def test_a_prompt_is_counted_by_the_same_rules(field: str, fields: dict[str, Any]) -> None:
    body = {"model": "org/toy", "messages": [USER], **fields}
    async with http_client(ScriptedService()) as client:
        response = await client.post("/v1/messages/count_tokens", json=body)
    assert response.status_code == 400
    assert field in fault(response)["message"]


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (Overloaded("no room", retry_after_s=7), 503, "overloaded_error"),
        (Overloaded("slow down", status=429, retry_after_s=7), 429, "rate_limit_error"),
        (RuntimeError(), 500, "api_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_failures_have_anthropics_types(failure: Exception, status: int, kind: str, stream: bool) -> None:
    service = ScriptedService()
    service.failure = failure
    async with http_client(service) as client:
        response = await client.post("/v1/messages", json={**BODY, "stream": stream})
    assert response.status_code == status
    assert fault(response)["type"] == kind
    assert response.headers.get("retry-after") == ("7" if isinstance(failure, Overloaded) else None)


@pytest.mark.parametrize(
    ("sent", "headers", "status", "kind"),
    [
        (b"{", JSON, 400, "invalid_request_error"),
        (b"{}", {"content-type": "text/plain"}, 415, "invalid_request_error"),
        (b" " * (MAX_BODY_BYTES + 1), JSON, 413, "request_too_large"),
        (json.dumps({**BODY, "model": "claude"}).encode(), JSON, 404, "not_found_error"),
    ],
)
async def test_bodies_that_cannot_be_read(sent: bytes, headers: dict[str, str], status: int, kind: str) -> None:
    async with http_client(ScriptedService()) as client:
        response = await client.post("/v1/messages", content=sent, headers=headers)
    assert response.status_code == status
    assert fault(response)["type"] == kind


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "metadata": {"user_id": "u"}, "service_tier": "auto", "thinking": None, "mcp_servers": []},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {}},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high", "task_budget": {"total": 20_000}}},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "container": None},
        {"betas": ["a"], "anthropic_beta": ["a"], "anthropic_version": "2023-06-01", "fallbacks": "default"},
        {"system": []},
        said({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}),
    ],
)
async def test_what_asks_for_nothing_is_accepted(fields: dict[str, Any]) -> None:
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "tools-2024-04-04"}
    counted = {name: value for name, value in {**BODY, **fields}.items() if name != "max_tokens"}
    service = ScriptedService()
    async with http_client(service) as client:
        await client.post("/v1/messages", json={**BODY, "messages": counted["messages"]})
        response = await client.post("/v1/messages?beta=true", json={**BODY, **fields}, headers=headers)
        assert response.status_code == 200, response.text
        count = await client.post("/v1/messages/count_tokens?beta=true", json=counted, headers=headers)
    plain, asked = service.asked
    assert asked.tokens == plain.tokens
    assert count.json() == {"input_tokens": asked.prompt_length}


Ask = Callable[[str, dict[str, Any]], Any]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Sends one request after another to the same service."""
    client = http_client(ScriptedService())

    def send(path: str, body: dict[str, Any]) -> Any:
        return loop.run(client.post(path, content=json.dumps(body).encode(), headers=JSON))

    with asyncio.Runner() as loop:
        yield send
        loop.run(client.aclose())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 99) | st.floats() | st.text(max_size=5) | st.just("org/toy"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "id", "name", "input"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(sorted(MessagesRequest.model_fields)), VALUES, max_size=3), st.booleans())
def test_no_value_of_any_field_makes_the_service_fail(ask: Ask, fields: dict[str, Any], counted: bool) -> None:
    response = ask("/v1/messages/count_tokens" if counted else "/v1/messages", {**BODY, **fields})
    if response.status_code == 200:
        assert "api_error" not in response.text
    else:
        assert response.status_code in {400, 404}, response.text
        assert fault(response)["message"]
