"""The FastAPI application of an ingress replica: the routes of all protocols, health, and facts for an admin."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel

from serve_app.api import error_forms
from serve_app.api.front_page import front_page
from serve_app.api.head import HeadAsGet
from serve_app.api.tokenizing import tokenizing
from serve_app.console.actions import Operator
from serve_app.console.page import INDEX, page_files, wants_page
from serve_app.console.routes import acting, reading, static
from serve_app.http.body import MAX_BODY_BYTES
from serve_app.http.errors import ErrorBody
from serve_app.http.service import Service
from serve_app.protocols.registry import PROTOCOLS

TITLE = "TaskSpec"
PACKAGE = "taskspec"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
KEY: Any = Depends(HTTPBearer(scheme_name="key", description="An API key of this service.", auto_error=False))
ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}}


class Health(BaseModel):
    status: Literal["ok", "unavailable"]


class Version(BaseModel):
    version: str


def create_app(
    service: Service,
    max_body_bytes: int = MAX_BODY_BYTES,
    *,
    asks_for_key: bool = False,
    operator: Operator | None = None,
) -> FastAPI:
    """The application in front of `service`. Its OpenAPI page says whether something before it `asks_for_key`.

    What the console reads and does is there if there is an `operator`.
    """
    app = FastAPI(title=TITLE, description="An OpenAI-compatible service with task-specialised speculative decoding.")
    app.state.max_body_bytes = max_body_bytes
    app.state.asks_for_key = asks_for_key
    health, *others = every = routers(service)
    app.include_router(health, responses=ERRORS)
    for router in others:
        app.include_router(router, responses=ERRORS, dependencies=[KEY] if asks_for_key else None)
    for router in _console(operator):
        app.include_router(router)
    routes = (route for router in every for route in router.routes if isinstance(route, APIRoute))
    error_forms.install(app, _listed(routes))
    app.add_middleware(HeadAsGet)
    return app


def routers(service: Service) -> list[APIRouter]:
    """The routes of every protocol, behind those that need no key."""
    protocols = [protocol.routes(service) for protocol in PROTOCOLS]
    return [_health(service), _facts(service), *protocols, tokenizing(service)]


def _console(operator: Operator | None) -> list[APIRouter]:
    return [static(page_files())] if operator is None else [static(page_files()), reading(operator), acting(operator)]


def _listed(routes: Iterable[APIRoute]) -> str:
    shown = (route for route in routes if route.include_in_schema)
    return ", ".join(f"{method} {route.path_format}" for route in shown for method in sorted(route.methods or ()))


def _health(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz", response_model=Health)
    @router.get("/health", response_model=Health)
    async def healthz(response: Response) -> Health:
        """200 if a request sent now would be answered, else 503."""
        healthy = await service.healthy()
        response.status_code = 200 if healthy else 503
        return Health(status="ok" if healthy else "unavailable")

    return router


def _facts(service: Service) -> APIRouter:
    router, files = APIRouter(), page_files()

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """The service's metrics of all nodes, for Prometheus."""
        return PlainTextResponse(await service.metrics(), media_type=METRICS)

    @router.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def front(request: Request) -> Response:
        """The console for browsers; for others what this is, and where to look."""
        if INDEX in files and wants_page(request.headers):
            return files[INDEX].response(request.headers)
        return HTMLResponse(front_page(service), headers={"Vary": "Accept"})

    @router.get("/version")
    async def package_version() -> Version:
        """The version of this package."""
        return Version(version=version(PACKAGE))

    return router
