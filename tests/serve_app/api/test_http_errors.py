"""Bodies, paths and methods that cannot be served, and services that fail: the right status, in OpenAI's form."""

from __future__ import annotations

from codecs import BOM_UTF8

import pytest

from core.errors import InvalidRequest
from serve_app.http.body import MAX_BODY_BYTES
from serve_app.http.service import Overloaded
from tests.serve_app.api.refusals import CHAT, COMPLETIONS, GOOD, body_of, refused
from tests.serve_app.clients import JSON, http_client
from tests.serve_app.scripted import ScriptedService


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'"hello"',
        b"NaN",
        b'{"model": NaN, }',
        b"null",
        b"\xff\xfe{}",
        b'{"model": "\xff"}',
        b'{"model": "\xed\xa0\x80"}',
        b'{"model": "\\ud800"}',
        b'{"prompt": "a", "prompt\\udc00": 1}',
        b"[" * 100_000,
        b'{"n": ' + b"1" * 5000 + b"}",
        '{"model": "a"}'.encode("utf-16"),
    ],
)
@pytest.mark.parametrize("path", GOOD)
async def test_a_body_that_is_no_json_object_is_refused(path: str, content: bytes) -> None:
    status, error = await refused(path, content=content, headers=JSON)
    assert status == 400
    assert "JSON" in error["message"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""])
async def test_a_body_of_another_type_is_refused(content_type: str) -> None:
    status, error = await refused(COMPLETIONS, content=b"{}", headers={"content-type": content_type})
    assert status == 415
    assert "application/json" in error["message"]


@pytest.mark.parametrize("path", GOOD)
async def test_a_mark_of_the_byte_order_before_the_body_is_fine(path: str) -> None:
    """.NET's and PowerShell's writers begin UTF-8 with it."""
    async with http_client(ScriptedService()) as client:
        response = await client.post(path, content=BOM_UTF8 + body_of(path, {}), headers=JSON)
    assert response.status_code == 200


async def test_a_charset_beside_the_content_type_is_fine() -> None:
    service = ScriptedService()
    async with http_client(service) as client:
        headers = {"content-type": "application/json; charset=utf-8"}
        response = await client.post(CHAT, content=body_of(CHAT, {}), headers=headers)
    assert response.status_code == 200


async def test_a_body_over_the_limit_is_too_large() -> None:
    status, error = await refused(COMPLETIONS, content=b" " * (MAX_BODY_BYTES + 1), headers=JSON)
    assert status == 413
    assert str(MAX_BODY_BYTES) in error["message"]


async def test_unknown_paths_and_methods_answer_in_the_same_form() -> None:
    async with http_client(ScriptedService()) as client:
        assert (missing := await client.get("/v2/nothing")).status_code == 404
        assert (wrong := await client.get(COMPLETIONS)).status_code == 405
    assert "no /v2/nothing here" in missing.json()["error"]["message"]
    assert wrong.json()["error"]["message"] == "/v1/completions does not take GET, but POST"
    assert wrong.headers["allow"] == "POST"


async def test_an_unknown_path_is_told_which_there_are() -> None:
    """Clients often leave out /v1, or give it twice."""
    async with http_client(ScriptedService()) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        for path in ("/chat/completions", "/v1/v1/chat/completions", "/" + "x" * 500):
            missing = await client.post(path, json=GOOD[CHAT])
            message = missing.json()["error"]["message"]
            assert missing.status_code == 404
            assert all(f"{method.upper()} {path}" in message for path, methods in paths.items() for method in methods)
            assert len(message) < 500


async def test_embeddings_are_refused_by_name() -> None:
    async with http_client(ScriptedService()) as client:
        response = await client.post("/v1/embeddings", json={"model": "org/toy", "input": "the answer"})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (
        400,
        "invalid_request_error",
        "unsupported_endpoint",
    )
    assert "no embeddings; ask a server of an embedding model" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status", "code", "retry_after"),
    [
        (Overloaded("every seat is taken", retry_after_s=7), 503, "overloaded", "7"),
        (Overloaded("slow down", status=429), 429, "overloaded", "1"),
        (InvalidRequest("stop", "no stop strings here"), 400, None, None),
        (ValueError("secret"), 500, None, None),
    ],
)
async def test_what_fails_before_the_first_token_has_its_status(
    *, stream: bool, failure: Exception, status: int, code: str | None, retry_after: str | None
) -> None:
    service = ScriptedService()
    service.failure = failure
    async with http_client(service) as client:
        response = await client.post(COMPLETIONS, json={**GOOD[COMPLETIONS], "stream": stream})
    assert (response.status_code, response.headers.get("retry-after")) == (status, retry_after)
    assert response.json()["error"]["code"] == code
    assert "secret" not in response.text
    assert service.open == 0
