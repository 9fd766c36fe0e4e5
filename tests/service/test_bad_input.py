"""Bad input gets an OpenAI-shaped 4xx naming the field, and the service stays healthy."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2 as httpx
import pytest

from tests.service.conftest import Service, chat

pytestmark = [pytest.mark.cluster, pytest.mark.smoke]

NAME = "taskspec-family"
FINE: dict[str, Any] = {"model": NAME} | chat("hello", max_tokens=4)
BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown model": ({"model": "gpt-9"}, 404, "model"),
    "no messages": ({"messages": []}, 400, "messages"),
    "prompt over context": ({"messages": [{"role": "user", "content": "word " * 3000}]}, 400, "messages"),
    "answer over context": ({"max_tokens": 5000}, 400, "max_tokens"),
    "negative temperature": ({"temperature": -1}, 400, "temperature"),
    "max_tokens 0": ({"max_tokens": 0}, 400, "max_tokens"),
    "n 10000": ({"n": 10000}, 400, "n"),
    "unknown field": ({"temprature": 1}, 400, "temprature"),
    "unknown task": ({"speculation": {"task": "cooking"}}, 400, "speculation.task"),
    "tool without a function": ({"tools": [{"type": "function"}]}, 400, "tools[0].function"),
    "bad schema": ({"guided_json": {"items": {"type": "txt"}, "type": "array"}}, 400, "guided_json.items"),
    "grammar that gives up": ({"guided_grammar": 'start: "a" t\nt[max_tokens=5]: /[a-z]+/'}, 400, "guided_grammar"),
}
RAW: dict[str, bytes] = {
    "broken JSON": b'{"model": ',
    "not UTF-8": b'{"model": "\xff\xfe"}',
    "NaN": json.dumps(FINE | {"temperature": float("nan")}).encode(),
}


@pytest.fixture
def post(service: Service) -> Any:
    def send(content: bytes) -> httpx.Response:
        return httpx.post(
            f"{service.url}/v1/chat/completions",
            content=content,
            headers={"content-type": "application/json"},
            timeout=60,
        )

    return send


@pytest.mark.parametrize("case", BAD)
def test_names_the_field(post: Any, case: str) -> None:
    fields, status, field = BAD[case]
    response = post(json.dumps(FINE | fields).encode())
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, field)
    assert error["message"]
    assert error["type"]


@pytest.mark.parametrize("case", RAW)
def test_unreadable_bodies_are_refused(post: Any, case: str) -> None:
    response = post(RAW[case])
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_empty_prompt_is_refused(service: Service) -> None:
    body = {"model": NAME, "prompt": "", "max_tokens": 4}
    response = httpx.post(f"{service.url}/v1/completions", json=body, timeout=60)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")


def test_stays_healthy_through_all_of_it(service: Service, post: Any) -> None:
    for fields, _, _ in BAD.values():
        post(json.dumps(FINE | fields).encode())
    assert httpx.get(f"{service.url}/healthz", timeout=60).status_code == 200
    assert asyncio.run(_concurrent(service)) == [200] * 4


async def _concurrent(service: Service) -> list[int]:
    async with service.client() as client:
        responses = await asyncio.gather(*(client.post("/v1/chat/completions", json=FINE) for _ in range(4)))
        return [response.status_code for response in responses]
