"""The application of an ingress replica behind everything that its configuration asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send

from serve_app.access.keys import Keys
from serve_app.access.limits import Allowances, Metered
from serve_app.access.middleware import Failures, KeyCheck, LimitCheck, Requests
from serve_app.api.app import create_app
from serve_app.config import Ingress
from serve_app.console.actions import Operator
from serve_app.console.page import CONSOLE
from serve_app.http.request_history import RequestHistory
from serve_app.http.service import Service
from serve_app.spans import Spans

METHODS = ("GET", "HEAD", "POST")
EXPOSED = (
    "retry-after",
    "x-request-id",
    *(f"x-ratelimit-{what}-{unit}" for what in ("limit", "remaining", "reset") for unit in ("requests", "tokens")),
)


class OpenOrigins(CORSMiddleware):
    """CORS for all paths but those of the console."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(CONSOLE):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


@dataclass(frozen=True)
class Access:
    """What the guards of an application know of its clients: their keys, limits and requests; None without any."""

    keys: Keys | None
    allowances: Allowances | None
    history: RequestHistory

    @classmethod
    def of(cls, settings: Ingress, keys: Keys | None) -> Access:
        limits = settings.limits
        return cls(keys, None if limits is None else Allowances(limits), RequestHistory())


def guarded(
    service: Service,
    settings: Ingress,
    access: Access,
    operator: Operator | None = None,
    *,
    numbered_by_proxy: bool = False,
    spans: Spans | None = None,
) -> FastAPI:
    """The application in front of `service`, with the console of an `operator`.

    If `numbered_by_proxy`, Serve's proxy writes the request ids.
    """
    keys, limits = access.keys, settings.limits
    metered = limits is not None and limits.tokens_per_minute is not None
    charging = cast("Service", Metered(service)) if metered else service
    app = create_app(charging, settings.max_body_bytes, asks_for_key=keys is not None, operator=operator)
    if access.allowances is not None:
        app.add_middleware(LimitCheck, allowances=access.allowances)
    if keys is not None:
        app.add_middleware(KeyCheck, keys=keys)
    app.add_middleware(Failures)
    if settings.cors is not None:  # around the check of keys, as browsers ask without one first
        app.add_middleware(
            OpenOrigins,
            allow_origins=settings.cors.origins,
            allow_methods=METHODS,
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    app.add_middleware(
        Requests,
        numbered_by_proxy=numbered_by_proxy,
        model=service.model_name,
        history=access.history,
        spans=spans or Spans(),
    )
    return app
