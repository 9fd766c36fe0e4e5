"""Compressed request bodies."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from serve_app.http.body import MAX_BODY_BYTES
from tests.serve_app.clients import JSON, http_client
from tests.serve_app.scripted import ScriptedService

CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}]}).encode()

COMPRESSED = gzip.compress(BODY)


async def sent(body: bytes, encoding: str, path: str = CHAT) -> tuple[int, Any, str | None]:
    """Status, body, and the encodings that the answer says are taken."""
    async with http_client(ScriptedService()) as client:
        headers = {**JSON, "content-encoding": encoding}
        response = await client.post(path, content=body, headers=headers)
    return response.status_code, response.json(), response.headers.get("accept-encoding")


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", " GZip "])
@pytest.mark.parametrize("members", [[BODY], [BODY[:20], BODY[20:]], [BODY, b""]])
async def test_gzip_is_read_however_many_members_it_has(encoding: str, members: list[bytes]) -> None:
    status, answer, _ = await sent(b"".join(map(gzip.compress, members)), encoding)
    assert status == 200, answer


async def test_identity_is_no_compression() -> None:
    assert (await sent(BODY, "identity"))[0] == 200


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip", "x" * 500])
async def test_other_encodings_are_refused_by_name(encoding: str) -> None:
    status, answer, accepted = await sent(BODY, encoding)
    assert (status, accepted) == (415, "gzip")
    assert f"'{encoding[:64]}'" in answer["error"]["message"]


async def test_messages_refuses_them_in_its_own_form() -> None:
    status, answer, _ = await sent(BODY, "br", "/v1/messages")
    assert (status, answer["type"]) == (415, "error")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (BODY, "is not gzip data"),
        (COMPRESSED[:-9], "ends within its gzip data"),
        (COMPRESSED + b"more", "is not gzip data"),
        (gzip.compress(b'{"model": '), "is not valid JSON"),
        (b"", "ends within its gzip data"),
    ],
    ids=["plain", "cut", "longer", "of half a body", "empty"],  # gzip data holds the time at which it was made
)
async def test_what_is_no_whole_gzip_is_refused(body: bytes, message: str) -> None:
    status, answer, _ = await sent(body, "gzip")
    assert status == 400
    assert message in answer["error"]["message"]


@pytest.mark.parametrize(
    "bomb",
    [gzip.compress(b" " * (MAX_BODY_BYTES + 1)), gzip.compress(b"") * (MAX_BODY_BYTES // 20 + 1)],
    ids=["large", "many members"],
)
async def test_a_bomb_is_refused_at_the_limit(bomb: bytes) -> None:
    """A thousandth of what it stands for; or nothing, a great many times."""
    status, answer, _ = await sent(bomb, "gzip")
    assert status == 413
    assert str(MAX_BODY_BYTES) in answer["error"]["message"]
