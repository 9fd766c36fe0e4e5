"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from serve_app.http.answers import respond
from serve_app.http.body import JsonRoute
from serve_app.http.prompts import chat_prompt, encoded
from serve_app.http.served_names import check_model
from serve_app.http.service import Service
from serve_app.protocols.anthropic.bodies import ErrorResponse, MessageBody, TokenCount
from serve_app.protocols.anthropic.requests import CountTokensRequest, MessagesRequest
from serve_app.protocols.anthropic.translation import translated
from serve_app.protocols.anthropic.writer import MessageWriter
from serve_app.protocols.translation import translated_batch

ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorResponse}, "5XX": {"model": ErrorResponse}}


def routes(service: Service) -> APIRouter:
    """The routes of the protocol."""
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/messages", response_model=None, responses={200: {"model": MessageBody}, **ERRORS})
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        """Answer a conversation in Anthropic's form."""
        _, batch = await translated_batch(translated, body, request, service, lowers_max_tokens=True)
        writer = MessageWriter(service, body.model, batch.prompt_tokens)
        return await respond(request, batch, service, writer, stream=body.stream)

    @router.post("/v1/messages/count_tokens", responses=ERRORS)
    async def count_tokens(body: CountTokensRequest, request: Request) -> TokenCount:
        """The tokens of the prompt that a conversation becomes."""
        chat, names = await encoded(translated, body, len(await request.body()))
        with names.clients():
            check_model(chat.model, service)
            return TokenCount(input_tokens=len(await chat_prompt(chat, service)))

    return router
