"""POST /v1/completions and /v1/chat/completions, and GET /v1/models."""

from __future__ import annotations

import time
from typing import NoReturn

from fastapi import APIRouter, Request, Response

from core.errors import InvalidRequest
from serve_app.http.answers import respond
from serve_app.http.batch import chat_batch, completion_batch
from serve_app.http.body import JsonRoute
from serve_app.http.owners import owner_of
from serve_app.http.schema.requests import ChatRequest, CompletionRequest
from serve_app.http.served_names import check_model, listed_names
from serve_app.http.service import Service
from serve_app.protocols.openai.bodies import ChatCompletion, Completion, ModelCard, ModelList
from serve_app.protocols.openai.logprobs import echoes
from serve_app.protocols.openai.writers import ChatWriter, CompletionWriter


def routes(service: Service) -> APIRouter:
    """The routes of the protocol."""
    router = APIRouter(route_class=JsonRoute)
    _add_models(router, service)
    _add_answers(router, service)
    return router


def _add_models(router: APIRouter, service: Service) -> None:
    created = int(time.time())

    def card(name: str) -> ModelCard:
        return ModelCard(id=name, created=created, owned_by="taskspec", root=service.model_name, **service.describe())

    @router.get("/v1/models")
    async def list_models() -> ModelList:
        """The one model of this service and its properties, by its own name first and then by its aliases."""
        return ModelList(data=list(map(card, listed_names(service))))

    @router.get("/v1/models/{model:path}")
    async def retrieve_model(model: str) -> ModelCard:
        """The model of that name, which may contain slashes."""
        check_model(model, service)
        return card(model)


def _add_answers(router: APIRouter, service: Service) -> None:
    @router.post("/v1/completions", response_model=None, responses={200: {"model": Completion}})
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue a prompt, or several."""
        batch = await completion_batch(body, service, owner_of(request.headers, service.owner_salt))
        writer = CompletionWriter(body, service.tokenizer, batch.seed, echoes(body, batch, service.tokenizer))
        return await respond(request, batch, service, writer, stream=body.stream)

    @router.post("/v1/chat/completions", response_model=None, responses={200: {"model": ChatCompletion}})
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        batch = await chat_batch(body, service, owner_of(request.headers, service.owner_salt))
        writer = ChatWriter(body, service.tokenizer, batch.seed)
        return await respond(request, batch, service, writer, stream=body.stream)

    @router.post("/v1/embeddings", response_model=None, include_in_schema=False)
    async def embeddings() -> NoReturn:
        message = "this service generates text and has no embeddings; ask a server of an embedding model for them"
        raise InvalidRequest(None, message, code="unsupported_endpoint")
