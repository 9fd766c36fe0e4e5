"""More requests than there is room for: some are turned away at once and told when to come back, none fails."""

from __future__ import annotations

import asyncio

import httpx2 as httpx
import pytest

from tests.service.conftest import Body, Service, chat

pytestmark = pytest.mark.cluster

MORE = 32
SHORT = MORE // 2  # answers that may end while others still come in, and leave them their place


def test_requests_beyond_the_queue_are_told_to_come_back(service: Service) -> None:
    turned_away = asyncio.run(_overloaded(service))
    for response in turned_away:
        assert response.headers["retry-after"] == "1"
        assert response.json()["error"]["code"] == "overloaded"
    service.eventually(lambda: not service.held())


async def _overloaded(service: Service) -> list[httpx.Response]:
    """Those turned away. The others are hung up on once half of the short ones are answered."""
    target = service.config.target
    bodies = [_body(service, 20)] * SHORT + [_body(service, 400)] * (target.max_sessions + target.max_queued + SHORT)
    answered, turned_away = 0, []
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=service.url, timeout=120, limits=limits) as client,
        asyncio.TaskGroup() as group,
    ):
        asking = [group.create_task(client.post("/v1/chat/completions", json=body)) for body in bodies]
        healthy = [(await client.get("/healthz")).status_code for _ in range(3)]
        for coming in asyncio.as_completed(asking):
            response = await coming
            assert response.status_code in (200, 503), response.text
            answered += response.status_code == 200
            turned_away += [response] * (response.status_code == 503)
            if answered >= SHORT // 2 and len(turned_away) >= MORE - SHORT:
                break
        for task in asking:
            task.cancel()
    assert healthy == [200] * 3, "busy is not ill"
    return turned_away


def _body(service: Service, tokens: int) -> Body:
    barred_end = {"2": -100}
    asked = chat("Write about the sea.", max_tokens=tokens, logit_bias=barred_end)
    return {"model": service.config.name} | asked
