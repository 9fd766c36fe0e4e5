"""The application of an ingress replica behind everything that its configuration asks for."""

from __future__ import annotations

from collections import Counter
from typing import cast

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from serve_app.access.keys import Keys
from serve_app.access.limits import Allowances, Metered
from serve_app.access.middleware import Failures, KeyCheck, LimitCheck, Requests
from serve_app.api.app import create_app
from serve_app.config import Ingress
from serve_app.http.handled import Handled
from serve_app.http.service import Service
from serve_app.spans import Spans

METHODS = ("GET", "HEAD", "POST")
EXPOSED = (
    "retry-after",
    "x-request-id",
    *(f"x-ratelimit-{what}-{unit}" for what in ("limit", "remaining", "reset") for unit in ("requests", "tokens")),
)


def guarded(
    service: Service,
    settings: Ingress,
    keys: Keys | None,
    *,
    numbered_by_proxy: bool = False,
    handled: Counter[Handled] | None = None,
    spans: Spans | None = None,
) -> FastAPI:
    """The application in front of `service`. If `numbered_by_proxy`, Serve's proxy writes the request ids.

    What it answers is counted in `handled`.
    """
    limits = settings.limits
    metered = limits is not None and limits.tokens_per_minute is not None
    charging = cast("Service", Metered(service)) if metered else service
    app = create_app(charging, settings.max_body_bytes, asks_for_key=keys is not None)
    if limits is not None:
        app.add_middleware(LimitCheck, allowances=Allowances(limits))
    if keys is not None:
        app.add_middleware(KeyCheck, keys=keys)
    app.add_middleware(Failures)
    if settings.cors is not None:  # around the check of keys, as browsers ask without one first
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors.origins,
            allow_methods=METHODS,
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    app.add_middleware(
        Requests,
        numbered_by_proxy=numbered_by_proxy,
        model=service.model_name,
        handled=Counter[Handled]() if handled is None else handled,
        spans=spans or Spans(),
    )
    return app
