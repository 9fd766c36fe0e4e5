"""Reads request bodies: JSON in UTF-8 of limited size; anything else is refused with the reason."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from email.message import Message
from typing import Any

import pydantic_core
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from serve_app.config import Ingress

MAX_BODY_BYTES: int = Ingress.model_fields["max_body_bytes"].default


class JsonRequest(Request):
    """A request whose body must be JSON of at most `app.state.max_body_bytes`."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        size, limit = 0, self.app.state.max_body_bytes
        async for chunk in super().stream():
            size += len(chunk)
            if size > limit:
                raise HTTPException(413, f"the body is over the limit of {limit} bytes")
            yield chunk

    async def body(self) -> bytes:
        if not _is_json(self.headers.get("content-type", "")):
            raise HTTPException(415, "the body must be JSON, sent with the header 'Content-Type: application/json'")
        return await super().body()

    async def json(self) -> Any:
        try:
            # NaN and Infinity pass here, so that validation can name the field.
            return pydantic_core.from_json(await self.body(), allow_inf_nan=True)
        except ValueError as error:
            raise HTTPException(400, f"the body is not valid JSON: {error}") from error


class JsonRoute(APIRoute):
    """A route whose requests are `JsonRequest`s."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle


def _is_json(content_type: str) -> bool:
    header = Message()
    header["content-type"] = content_type
    kind = header.get_content_type()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
