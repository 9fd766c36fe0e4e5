"""More requests than there is room for: some are turned away at once and told when to come back, none fails."""

from __future__ import annotations

import asyncio

import httpx2 as httpx
import pytest

from serve_app.deployments.answer.admission import MAX_WAIT
from tests.service.conftest import Service, chat

pytestmark = pytest.mark.cluster

MORE = 80


def test_requests_beyond_the_queue_are_told_to_come_back(service: Service) -> None:
    target = service.config.target
    healthy, responses = asyncio.run(_ask(service, target.max_sessions + target.max_queued + MORE))
    assert healthy == [200] * 3, "busy is not ill"
    turned_away = [response for response in responses if response.status_code == 503]
    assert len(turned_away) >= MORE // 4  # others get in because answers have ended
    assert {response.status_code for response in responses} == {200, 503}
    for response in turned_away:
        assert 1 <= int(response.headers["retry-after"]) <= MAX_WAIT
        assert response.json()["error"]["code"] == "overloaded"
    service.frees_everything()


async def _ask(service: Service, times: int) -> tuple[list[int], list[httpx.Response]]:
    """What /healthz says while all are asked, and their answers."""
    limits = httpx.Limits(max_connections=None)
    body = {"model": service.config.name} | chat("Write about the sea.", max_tokens=150, logit_bias={"2": -100})
    async with httpx.AsyncClient(base_url=service.url, timeout=120, limits=limits) as client:
        asking = asyncio.gather(*(client.post("/v1/chat/completions", json=body) for _ in range(times)))
        healthy = [(await client.get("/healthz")).status_code for _ in range(3)]
        return healthy, await asking
