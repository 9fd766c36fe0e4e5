"""Requests that are served as they stand, and the errors of those that must not reach a model."""

from __future__ import annotations

import json
from typing import Any

from tests.serve_app.clients import http_client
from tests.serve_app.scripted import ScriptedService

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
GOOD: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"model": "org/toy", "prompt": "the answer"},
    CHAT: {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}]},
}


async def refused(path: str, **sent: Any) -> tuple[int, dict[str, Any]]:
    """Status and error of a request that must not have reached the service, which must still answer."""
    service = ScriptedService()
    async with http_client(service) as client:
        response = await client.post(path, **sent)
        assert not service.asked
        assert (await client.post(path, json=GOOD[path])).status_code == 200
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return response.status_code, error


def body_of(path: str, fields: dict[str, Any]) -> bytes:
    # Python's json writes NaN and Infinity as the bare words that some clients send
    body = {name: value for name, value in {**GOOD[path], **fields}.items() if value is not None}
    return json.dumps(body).encode()
