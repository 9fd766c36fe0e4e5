"""What Serve's HTTP proxies do before anything else. `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH` names `middlewares`.

A proxy writes `x-request-id` into every response, as the request has it: here it gets a good one first. Proxies also
tell anybody which applications there are, at a path of their own that no client needs.
"""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.access.request_ids import number

CALLBACK = f"{__name__}:middlewares"
ROUTES = "/-/routes"


def middlewares() -> list[Middleware]:
    return [Middleware(Numbering)]


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
