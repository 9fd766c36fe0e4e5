"""The FastAPI application of an ingress replica: routes only.

Request bodies are defined in `openai.requests`, turned into generation requests in `openai.batch`, and answered in
`openai.answers`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, NoReturn

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from core.errors import InvalidRequest
from serve_app.api import error_forms
from serve_app.api.front_page import front_page
from serve_app.api.head import HeadAsGet
from serve_app.api.tokenizing import tokenizing
from serve_app.http.answers import streamed, whole
from serve_app.http.batch import Batch, chat_batch, completion_batch
from serve_app.http.body import MAX_BODY_BYTES, JsonRoute
from serve_app.http.owners import owner_of
from serve_app.http.schema.requests import ChatRequest, CompletionRequest, GenerationFields, StreamOptions
from serve_app.http.served_names import check_model, listed_names
from serve_app.http.service import Service
from serve_app.protocols.anthropic.routes import messages
from serve_app.protocols.openai.bodies import (
    ChatCompletion,
    Completion,
    ErrorBody,
    Health,
    ModelCard,
    ModelList,
    Version,
)
from serve_app.protocols.openai.chunks import Chunks
from serve_app.protocols.openai.echo import echoes
from serve_app.protocols.openai.response_building import ChatFormat, CompletionFormat, Format
from serve_app.protocols.responses.routes import responses

TITLE = "TaskSpec"
PACKAGE = "taskspec"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
KEY: Any = Depends(HTTPBearer(scheme_name="key", description="An API key of this service.", auto_error=False))
ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}}


def create_app(service: Service, max_body_bytes: int = MAX_BODY_BYTES, *, asks_for_key: bool = False) -> FastAPI:
    """The application in front of `service`. Its OpenAPI page says whether something before it `asks_for_key`."""
    app = FastAPI(title=TITLE, description="An OpenAI-compatible service with task-specialised speculative decoding.")
    app.state.max_body_bytes = max_body_bytes
    health, *others = included = routers(service)
    app.include_router(health, responses=ERRORS)
    for router in others:
        app.include_router(router, responses=ERRORS, dependencies=[KEY] if asks_for_key else None)
    every = (route for router in included for route in router.routes if isinstance(route, APIRoute))
    error_forms.install(app, _listed(every))
    app.add_middleware(HeadAsGet)
    return app


def routers(service: Service) -> list[APIRouter]:
    """The routes of every protocol, behind those that need no key."""
    protocols = [_generation(service), responses(service), messages(service)]
    return [_health(service), _facts(service), *protocols, tokenizing(service), _absent()]


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
    router = APIRouter()
    created = int(time.time())

    def card(name: str) -> ModelCard:
        return ModelCard(id=name, created=created, owned_by="taskspec", root=service.model_name, **service.describe())

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """The service's metrics of all nodes, for Prometheus."""
        return PlainTextResponse(await service.metrics(), media_type=METRICS)

    @router.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def front() -> str:
        """What this is, and where to look."""
        return front_page(service)

    @router.get("/version")
    async def package_version() -> Version:
        """The version of this package."""
        return Version(version=version(PACKAGE))

    @router.get("/v1/models")
    async def list_models() -> ModelList:
        """The one model of this service and its properties, by its own name first and then by its aliases."""
        return ModelList(data=list(map(card, listed_names(service))))

    @router.get("/v1/models/{model:path}")
    async def retrieve_model(model: str) -> ModelCard:
        """The model of that name, which may contain slashes."""
        check_model(model, service)
        return card(model)

    return router


def _generation(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    def owner(request: Request) -> str | None:
        return owner_of(request.headers, service.owner_salt)

    async def answer(request: Request, body: GenerationFields, batch: Batch, form: Format) -> Response:
        if body.stream:
            shown = body.stream_options or StreamOptions()
            usage = {"include_usage": shown.include_usage, "continuous_usage": shown.continuous_usage_stats}
            return await streamed(request, batch, service, Chunks(form, **usage))
        return await whole(request, batch, service, form.answer)

    @router.post("/v1/completions", response_model=None, responses={200: {"model": Completion}})
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue a prompt, or several."""
        batch = await completion_batch(body, service, owner(request))
        shown = echoes(body, batch, service.tokenizer)
        form = CompletionFormat(service.tokenizer, body.model, body.alternatives is not None, shown)
        return await answer(request, body, batch, form)

    @router.post("/v1/chat/completions", response_model=None, responses={200: {"model": ChatCompletion}})
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        batch = await chat_batch(body, service, owner(request))
        form = ChatFormat(service.tokenizer, body.model, body.alternatives is not None)
        return await answer(request, body, batch, form)

    return router


def _absent() -> APIRouter:
    """What clients may expect and this service has not, refused with what to do instead."""
    router = APIRouter(include_in_schema=False)

    @router.post("/v1/embeddings", response_model=None)
    async def embeddings() -> NoReturn:
        message = "this service generates text and has no embeddings; ask a server of an embedding model for them"
        raise InvalidRequest(None, message, code="unsupported_endpoint")

    return router
