"""The last verifier is lost and the next is long in coming: nobody waits in silence, and no answer is lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2 as httpx
import pytest
import ray

from tests.service.conftest import Body, Service, chat
from tests.service.test_exactness import PLAIN
from tests.service.test_verifier_killed import LONG, verifier_replica

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

OPEN = 4  # answers under way
BOUND = 120.0  # seconds


def test_nobody_waits_in_silence_while_no_verifier_runs(service: Service) -> None:
    body = chat("Write about the sea.", seed=5, temperature=1.0) | LONG | {"max_tokens": 600}
    plain = service.answer(body | {"speculation": PLAIN})
    told = len(service.ingress_log())
    streams, refused, healthy = asyncio.run(_outage(service, body))
    for comments, text in streams:
        assert comments, "a balancer would have closed the stream"
        assert text == plain["choices"][0]["message"]["content"]
    for response in refused:
        assert (response.status_code, response.headers["retry-after"]) == (503, "10")
        assert response.json()["error"]["code"] == "overloaded"
    assert healthy == sorted(healthy)
    assert healthy[-1] == 503
    lines = [line.partition(" -- ")[2] for line in service.ingress_log()[told:]]
    for begin, number in (
        ("no verifier runs", 1),
        ("verifier tcp://", 1),  # is lost
        ("a verifier runs again", 1),
        ("an answer goes on", OPEN),
    ):
        assert sum(line.startswith(begin) for line in lines) == number, lines
    assert len(lines) < 10 * OPEN, lines
    service.frees_everything()


async def _outage(service: Service, body: Body) -> tuple[list[tuple[int, str]], list[httpx.Response], list[int]]:
    """The comments and texts of open answers, the answers to new requests, and what /healthz said meanwhile."""
    named = {"model": service.config.name} | body
    async with asyncio.timeout(BOUND), service.client() as client:
        begun = [asyncio.Event() for _ in range(OPEN)]
        answering = [asyncio.create_task(_streamed(client, named, event)) for event in begun]
        await asyncio.gather(*(event.wait() for event in begun))
        service.gate.touch()
        try:
            ray.kill(ray.get_actor(verifier_replica(), namespace="serve"))
            new = [client.post("/v1/chat/completions", json=named | {"stream": stream}) for stream in (False, True)]
            healthy = asyncio.create_task(_health(client))
            refused = await asyncio.gather(*new)
            healthy_told = await healthy
        finally:
            service.gate.unlink()
        return await asyncio.gather(*answering), refused, healthy_told


async def _streamed(client: httpx.AsyncClient, body: Body, begun: asyncio.Event) -> tuple[int, str]:
    """How many comments, and the text."""
    comments, text = 0, ""
    async with client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as response:
        async for line in response.aiter_lines():
            comments += line.startswith(":")
            if line.startswith("data: {"):
                event: Any = json.loads(line.removeprefix("data: "))
                text += event["choices"][0]["delta"].get("content") or ""
                if text:
                    begun.set()
    return comments, text


async def _health(client: httpx.AsyncClient) -> list[int]:
    told = []
    for _ in range(8):
        told.append((await client.get("/healthz")).status_code)
        await asyncio.sleep(1.0)
    return told
