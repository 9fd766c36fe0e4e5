"""What Serve's proxies do first, and how they read HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest
import uvicorn
from ray.serve._private.http_util import (
    RequestIdMiddleware,
    _apply_middlewares,
    validate_http_proxy_callback_return,
)
from ray.serve._private.utils import call_function_from_import_path
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.access.middleware import MAX_HEADER_BYTES
from serve_app.access.proxy import (
    CALLBACK,
    HEADER_BYTES_READ,
    NOBODY,
    REPEATED_FOR,
    Numbering,
    Shedding,
    Wording,
    middlewares,
    refusals,
)
from serve_app.api.app import create_app
from serve_app.api.error_forms import error_response
from serve_app.http.service import Overloaded
from tests.eventually import PATIENCE
from tests.serve_app.clients import H2C, raw_post
from tests.serve_app.scripted import ScriptedService

CHAT: dict[str, Any] = {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "org/toy", "prompt": "the answer"},
    "/v1/responses": {"model": "org/toy", "input": "the answer"},
    "/v1/messages": {**CHAT, "max_tokens": 8},
    "/v1/messages/count_tokens": CHAT,
    "/tokenize": {"prompt": "the answer"},
}


def test_serve_takes_the_callback() -> None:
    used = validate_http_proxy_callback_return(call_function_from_import_path(CALLBACK))
    assert [middleware.cls for middleware in used] == [Wording, Shedding, Numbering]


def as_served(app: ASGIApp) -> ASGIApp:
    """The application as a proxy of Serve's wraps it."""
    return _apply_middlewares(app, middlewares())


class Ingress:
    """Raises `error`, if there is one, and answers otherwise."""

    def __init__(self) -> None:
        self.error: Overloaded | None = None
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        answer = JSONResponse({"mine": 1}) if self.error is None else error_response(self.error, scope["path"])
        await answer(scope, receive, send)


async def test_a_full_queue_is_told_again_for_a_moment() -> None:
    now, ingress = 0.0, Ingress()
    ingress.error = Overloaded("full", retry_after_s=7, queue_full=True)
    transport = httpx.ASGITransport(Shedding(ingress, lambda: now))
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        first = await client.post("/v1/chat/completions", json={})
        ingress.error = None
        again = [await client.post(f"/v1/{path}", json={}) for path in ("chat/completions", "messages")]
        assert [answer.status_code for answer in (first, *again)] == [503] * 3
        assert [answer.headers["retry-after"] for answer in again] == ["7", "7"]
        assert "try again in 7 s" in again[0].json()["error"]["message"]
        assert ingress.asked == 1
        assert (await client.get("/v1/models")).status_code == 200
        now = REPEATED_FOR
        assert (await client.post("/v1/messages", json={})).json() == {"mine": 1}
        assert (await client.post("/v1/messages", json={})).status_code == 200


@pytest.mark.parametrize("error", [Overloaded("no verifier is running"), Overloaded("gone", status=502)])
async def test_no_other_refusal_is_told_again(error: Overloaded) -> None:
    ingress = Ingress()
    ingress.error = error
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Shedding(ingress)), base_url="http://service") as client:
        assert (await client.post("/v1/messages", json={})).status_code == error.status
        ingress.error = None
        assert (await client.post("/v1/messages", json={})).status_code == 200


async def test_what_proxies_say_has_the_id_of_the_request() -> None:
    ingress = Ingress()
    ingress.error = Overloaded("full", queue_full=True)
    for app, statuses in ((ingress, [503, 503]), (silent, [502, 502])):
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(as_served(app)), base_url="http://service"
        ) as client:
            answers = [await client.post("/v1/messages", json={}, headers={"x-request-id": "mine"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == statuses
        assert [answer.headers.get_list("x-request-id") for answer in answers] == [["mine"]] * 2
    assert ingress.asked == 1


async def test_what_proxies_say_themselves_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counter[str]()
    monkeypatch.setattr(refusals(), "inc", lambda value, tags: counted.update({tags["status"]: value}))
    ingress = Ingress()
    for app, error in (
        (ingress, Overloaded("full", queue_full=True)),
        (ingress, Overloaded("no verifier is running")),
        (silent, None),
    ):
        ingress.error = error
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(as_served(app)), base_url="http://service"
        ) as client:
            for _ in range(3):
                await client.post("/v1/messages", json={})
    assert counted == {"503": 2, "502": 3}  # the first of the full queue is the ingress' own, and counted there


async def silent(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """What Serve's proxy does if a replica dies before it answers."""


@pytest.mark.parametrize("inner", [silent, PlainTextResponse("no replicas", 503), PlainTextResponse("slow", 408)])
@pytest.mark.parametrize(("path", "form"), [("chat/completions", "error"), ("messages", "type")])
async def test_a_proxy_that_has_no_answer_says_so_in_the_form_of_the_protocol(
    inner: ASGIApp, path: str, form: str
) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Wording(inner)), base_url="http://service") as client:
        response = await client.post(f"/v1/{path}", json={})
    assert (response.status_code, response.headers["retry-after"]) == (502, "1")
    assert form in response.json()
    assert response.json()["error"]["message"] == NOBODY


async def test_what_an_ingress_answers_passes_and_so_does_what_is_not_of_the_api() -> None:
    for inner, path in (
        (JSONResponse({"mine": 1}, 503), "/v1/models"),
        (PlainTextResponse("fine"), "/v1/models"),
        (PlainTextResponse("draining", 503), "/-/healthz"),
    ):
        transport = httpx.ASGITransport(Wording(inner))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            response = await client.get(path)
        assert (response.status_code, response.content) == (inner.status_code, inner.body)


async def test_serves_own_header_has_a_good_id_and_the_applications_are_nobodys_business() -> None:
    app = Numbering(RequestIdMiddleware(PlainTextResponse("served")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        for sent, echoed in (("mine", True), ("x" * 500, False)):
            [got] = (await client.get("/v1/models", headers={"x-request-id": sent})).headers.get_list("x-request-id")
            assert (got == sent) == echoed
            assert got
        assert (await client.get("/-/routes")).status_code == 404
        assert (await client.get("/-/healthz")).text == "served"


@asynccontextmanager
async def proxy() -> AsyncIterator[int]:
    """The port of a server such as Serve makes in a proxy, with an ingress behind it."""
    middlewares()
    config = uvicorn.Config(create_app(ScriptedService()), port=0, lifespan="off", log_level="critical")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(PATIENCE):
            while not server.started:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, PATIENCE)


@pytest.mark.parametrize(
    "offer",
    [H2C, "Connection: keep-alive, Upgrade\r\nUpgrade: TLS/1.2\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n"],
)
async def test_an_offer_of_another_protocol_is_ignored_and_the_body_read(offer: str) -> None:
    """What Java's HttpClient and `curl --http2` send by default."""
    async with proxy() as port:
        for path, body in BODIES.items():
            head, answer = await raw_post(port, path, json.dumps(body).encode(), offer)
            assert head.startswith("http/1.1 200"), answer
            assert json.loads(answer)


async def test_a_client_of_http_1_0_gets_a_stream_without_chunks() -> None:
    async with proxy() as port:
        body = json.dumps({**CHAT, "stream": True}).encode()
        head, answer = await raw_post(port, "/v1/chat/completions", body, version="1.0")
    assert head.startswith("http/1.1 200")
    assert "chunked" not in head
    assert all(line.startswith("data: ") for line in answer.split("\n\n") if line)
    assert answer.endswith("data: [DONE]\n\n")


async def test_a_compressed_body_passes() -> None:
    async with proxy() as port:
        body = gzip.compress(json.dumps(CHAT).encode())
        head, answer = await raw_post(port, "/v1/chat/completions", body, "Content-Encoding: gzip\r\n")
    assert head.startswith("http/1.1 200"), answer


async def test_headers_up_to_its_limit_are_the_ingresss_to_refuse() -> None:
    assert HEADER_BYTES_READ > MAX_HEADER_BYTES
    async with proxy() as port:
        body = json.dumps(CHAT).encode()
        head, _ = await raw_post(port, "/v1/chat/completions", body, f"X-Long: {'x' * MAX_HEADER_BYTES}\r\n")
    assert head.startswith("http/1.1 200")  # the middleware that refuses them is not in this application
