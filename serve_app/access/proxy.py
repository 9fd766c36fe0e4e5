"""What Serve's HTTP proxies do before anything else. `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH` names `middlewares`.

A proxy writes `x-request-id` into every response, as the request has it: here it gets a good one first. Proxies also
tell anybody which applications there are, at a path of their own that no client needs. They read HTTP with h11. What
they say themselves of a request to the API is said as the ingress would. And they turn away what it would turn away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

from ray.serve import metrics
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import HTTP_PROTOCOLS, Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from serve_app.access.request_ids import HEADER, number
from serve_app.api.error_forms import error_response
from serve_app.http.errors import FULL, QUEUE
from serve_app.http.handled import API
from serve_app.http.service import Overloaded, full_queue

CALLBACK = f"{__name__}:middlewares"
ROUTES = "/-/routes"
REPEATED_FOR = 0.25  # seconds in which a full ingress is not asked again; most queues have work for longer
NOBODY = "no replica of the ingress answered this request: it has died, or none runs; send the request again"
HEADER_BYTES_READ = 1 << 17  # twice what the ingress takes, so that it refuses most in its own words


def middlewares() -> list[Middleware]:
    """Serve calls this in every proxy, before it starts the server there, whose protocol it leaves to uvicorn."""
    HTTP_PROTOCOLS["auto"] = f"{__name__}:{Http.__name__}"
    return [Middleware(Wording), Middleware(Shedding), Middleware(Numbering)]  # from the inside out


class Http(H11Protocol):
    """HTTP by h11, as uvicorn's choice, httptools, fails clients.

    With httptools, a request that offers another protocol has no body, as Java's clients and `curl --http2` do; and a
    client of HTTP/1.0 is sent chunks, which it cannot read. There are no WebSockets here, so none is opened.
    """

    def __init__(self, config: Config, *arguments: Any, **named: Any) -> None:
        config.h11_max_incomplete_event_size = HEADER_BYTES_READ
        super().__init__(config, *arguments, **named)
        self.ws_protocol_class = None


class Numbering:
    """ASGI middleware around a proxy."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            number(scope)
            if scope["path"] == ROUTES:
                await PlainTextResponse("not found", 404)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Shedding:
    """ASGI middleware that repeats, for a moment, that the queue of an ingress is full.

    To pass a request on and have it refused takes proxy and ingress 24 ms of CPU time, which the answers need. Of
    several ingress replicas one speaks for all: Serve gives a request to the one that has fewest.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._retry_after_s = 1
        self._until = clock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith(API):
            await self._app(scope, receive, send)
            return
        if self._clock() < self._until:
            await _answer(full_queue(self._retry_after_s), scope, receive, send)
            return

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                if headers.get(QUEUE) == FULL:
                    self._retry_after_s = int(headers["retry-after"])
                    self._until = self._clock() + REPEATED_FOR
            await send(message)

        await self._app(scope, receive, send_noted)


class Wording:
    """ASGI middleware that answers for an ingress which could not: with a 502 in the form of the protocol.

    Of an ingress that has died before it answered a proxy says nothing, and of one that is not there a line of text. A
    balancer may send the request to another proxy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(API):
            await self._app(scope, receive, send)
            return
        answered = False

        async def send_answer(message: Message) -> None:
            nonlocal answered
            answered = answered or (message["type"] == "http.response.start" and not _is_of_proxy(message))
            if answered:
                await send(message)

        await self._app(scope, receive, send_answer)
        if not answered:
            await _answer(Overloaded(NOBODY, status=502), scope, receive, send)


async def _answer(error: Overloaded, scope: Scope, receive: Receive, send: Send) -> None:
    """In the form of the protocol, with the id of the request as every response has it."""
    refusals().inc(1, {"status": str(error.status)})
    await error_response(error, scope["path"], {HEADER.decode(): number(scope)})(scope, receive, send)


@cache
def refusals() -> metrics.Counter:
    """What this proxy says itself: ingress replicas, which count what they say, know nothing of it."""
    return metrics.Counter("taskspec_proxy_refusals", tag_keys=("status",))


def _is_of_proxy(start: Message) -> bool:
    """Whether a response is a proxy's own: an ingress has no error that is plain text."""
    return start["status"] >= 400 and Headers(raw=start["headers"]).get("content-type", "").startswith("text/plain")
