"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response

from serve_app.http.answers import streamed, whole
from serve_app.http.batch import chat_batch
from serve_app.http.body import JsonRoute
from serve_app.http.owners import owner_of
from serve_app.http.prompts import chat_prompt, encoded
from serve_app.http.served_names import check_model
from serve_app.http.service import Service
from serve_app.protocols.anthropic.bodies import ErrorBody, MessageBody, TokenCount
from serve_app.protocols.anthropic.message_building import MessageBuilder
from serve_app.protocols.anthropic.requests import CountTokensRequest, MessagesRequest
from serve_app.protocols.anthropic.translation import translated

ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}}


def messages(service: Service) -> APIRouter:
    """The routes of the protocol."""
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/messages", response_model=None, responses={200: {"model": MessageBody}, **ERRORS})
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        """Answer a conversation in Anthropic's form."""
        chat, names = await encoded(translated, body, len(await request.body()))
        with names.clients():
            owner = owner_of(request.headers, service.owner_salt)
            batch = await chat_batch(chat, service, owner, lowers_max_tokens=True)
        batch = replace(batch, grammar_field=names.of(batch.grammar_field))
        message = MessageBuilder(service, body.model, batch.prompt_tokens)
        if body.stream:
            return await streamed(request, batch, service, message)
        return await whole(request, batch, service, message.answer)

    @router.post("/v1/messages/count_tokens", responses=ERRORS)
    async def count_tokens(body: CountTokensRequest, request: Request) -> TokenCount:
        """The tokens of the prompt that a conversation becomes."""
        chat, names = await encoded(translated, body, len(await request.body()))
        with names.clients():
            check_model(chat.model, service)
            return TokenCount(input_tokens=len(await chat_prompt(chat, service)))

    return router
