"""POST /v1/responses."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request, Response

from serve_app.http.answers import streamed, whole
from serve_app.http.batch import chat_batch
from serve_app.http.body import JsonRoute
from serve_app.http.owners import owner_of
from serve_app.http.prompts import encoded
from serve_app.http.service import Service
from serve_app.protocols.responses.bodies import ResponseBody
from serve_app.protocols.responses.requests import ResponsesRequest
from serve_app.protocols.responses.response_building import ResponseBuilder
from serve_app.protocols.responses.translation import translated


def responses(service: Service) -> APIRouter:
    """The routes of the protocol."""
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/responses", response_model=None, responses={200: {"model": ResponseBody}})
    async def create_response(body: ResponsesRequest, request: Request) -> Response:
        """Answer a conversation in OpenAI's newer form. The service keeps no conversation."""
        chat, names = await encoded(translated, body, len(await request.body()))
        with names.clients():
            batch = await chat_batch(chat, service, owner_of(request.headers, service.owner_salt))
        batch = replace(batch, grammar_field=names.of(batch.grammar_field))
        response = ResponseBuilder(body, chat, service)
        if body.stream:
            return await streamed(request, batch, service, response)
        return await whole(request, batch, service, response.answer)

    return router
