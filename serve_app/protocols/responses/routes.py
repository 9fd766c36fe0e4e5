"""POST /v1/responses."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from serve_app.http.answers import respond
from serve_app.http.body import JsonRoute
from serve_app.http.service import Service
from serve_app.protocols.responses.bodies import ResponseBody
from serve_app.protocols.responses.requests import ResponsesRequest
from serve_app.protocols.responses.translation import translated
from serve_app.protocols.responses.writer import ResponseWriter
from serve_app.protocols.translation import translated_batch


def routes(service: Service) -> APIRouter:
    """The routes of the protocol."""
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/responses", response_model=None, responses={200: {"model": ResponseBody}})
    async def create_response(body: ResponsesRequest, request: Request) -> Response:
        """Answer a conversation in OpenAI's newer form. The service keeps no conversation."""
        chat, batch = await translated_batch(translated, body, request, service)
        return await respond(request, batch, service, ResponseWriter(body, chat, service), stream=body.stream)

    return router
