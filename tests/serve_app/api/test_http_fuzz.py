"""No input at all makes the service fail: every answer is a success or a 4xx in OpenAI's form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.api.tokenizing import DetokenizeRequest, TokenizeRequest
from serve_app.http.schema.requests import ChatRequest, CompletionRequest
from serve_app.protocols.responses.requests import ResponsesRequest
from tests.examples import examples
from tests.serve_app.clients import JSON, http_client
from tests.serve_app.scripted import ScriptedService

BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "org/toy", "prompt": "the answer"},
    "/v1/chat/completions": {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}]},
    "/v1/responses": {"model": "org/toy", "input": "the answer"},
    "/tokenize": {"prompt": "the answer"},
    "/detokenize": {"tokens": [0, 1, 2]},
}
PATHS = st.sampled_from(sorted(BODIES))
NAMES = st.sampled_from(
    sorted(
        {
            *CompletionRequest.model_fields,
            *ChatRequest.model_fields,
            *CompletionRequest.unsupported,
            *ChatRequest.unsupported,
            *ChatRequest.ignored,
            *ResponsesRequest.model_fields,
            *ResponsesRequest.unsupported,
            *TokenizeRequest.model_fields,
            *DetokenizeRequest.model_fields,
        }
    )
)
WORDS = st.sampled_from(["general", "org/toy", "user", "developer", "text", "12", "</s>", "🙂"]) | st.text(max_size=5)
NUMBERS = st.integers() | st.integers(-2, 21) | st.floats()
KEYS = st.sampled_from(
    ["task", "enabled", "num_speculative_tokens", "include_usage", "role", "content", "type", "text"]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | WORDS, inner, max_size=4),
    max_leaves=12,
)


Ask = Callable[[str, str, bytes], httpx2.Response]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Sends one request after another to the same service."""
    service = ScriptedService()
    client = http_client(service)

    def send(method: str, path: str, body: bytes) -> httpx2.Response:
        response = loop.run(client.request(method, path, content=body, headers=JSON))
        assert service.open == 0
        return response

    with asyncio.Runner() as loop:
        yield send
        loop.run(client.aclose())


def check(response: httpx2.Response) -> None:
    if response.status_code == 200:
        assert "server_error" not in response.text
        return
    assert response.status_code in {400, 404}, response.text
    error = response.json()["error"]
    assert error["message"]
    assert error.keys() == {"message", "type", "param", "code"}


@settings(max_examples=examples(500))
@given(PATHS, st.dictionaries(NAMES | WORDS, JSON_VALUES, max_size=3))
def test_any_value_in_any_field(ask: Ask, path: str, fields: dict[str, Any]) -> None:
    check(ask("POST", path, json.dumps({**BODIES[path], **fields}).encode()))


@settings(max_examples=examples(100))
@given(PATHS, JSON_VALUES)
def test_any_json(ask: Ask, path: str, body: Any) -> None:
    check(ask("POST", path, json.dumps(body).encode()))


@settings(max_examples=examples(100))
@given(PATHS, st.binary(max_size=40))
def test_any_bytes(ask: Ask, path: str, body: bytes) -> None:
    check(ask("POST", path, body))


@settings(max_examples=examples(50))
@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_model_name(ask: Ask, name: str) -> None:
    check(ask("GET", f"/v1/models/{quote(name, safe='')}", b""))
