"""Reads request bodies: JSON in UTF-8 of limited size, plain or as gzip; anything else is refused with the reason."""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterator
from email.message import Message
from typing import Any

import pydantic_core
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from core.errors import InvalidRequest
from serve_app.config import Ingress
from serve_app.http.content_encoding import decoded
from serve_app.http.errors import Place, path_of

MAX_BODY_BYTES: int = Ingress.model_fields["max_body_bytes"].default


class JsonRequest(Request):
    """A request whose body must be JSON of at most `app.state.max_body_bytes`."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        encoded = self._limited(super().stream())
        async for chunk in self._limited(decoded(encoded, self.headers.get("content-encoding", ""))):
            yield chunk

    async def _limited(self, chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
        size, limit = 0, self.app.state.max_body_bytes
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                raise HTTPException(413, f"the body is over the limit of {limit} bytes")
            yield chunk

    async def body(self) -> bytes:
        if not _is_json(self.headers.get("content-type", "")):
            raise HTTPException(415, "the body must be JSON, sent with the header 'Content-Type: application/json'")
        return await super().body()

    async def json(self) -> Any:
        body = (await self.body()).removeprefix(BOM_UTF8)
        try:
            return pydantic_core.from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise _fault(body, error) from error


class JsonRoute(APIRoute):
    """A route whose requests are `JsonRequest`s."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle


def _fault(body: bytes, error: ValueError) -> Exception:
    """What to say of a body that is no JSON. Python's and JavaScript's NaN and Infinity get words of their own."""
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=True)
    except ValueError:
        return HTTPException(400, f"the body is not valid JSON: {error}")
    place, number = next(_not_finite(value))
    field = path_of(place)
    return InvalidRequest(field, f"'{field or 'the body'}' is {number}, which JSON does not have; send a finite number")


def _not_finite(value: Any) -> Iterator[tuple[Place, str]]:
    """The place and the name of every number in `value` that is not finite."""
    unseen: list[tuple[Place, Any]] = [((), value)]
    while unseen:
        place, inner = unseen.pop()
        if isinstance(inner, float) and not math.isfinite(inner):
            yield place, "NaN" if math.isnan(inner) else "Infinity" if inner > 0 else "-Infinity"
        elif isinstance(inner, dict):
            unseen += [((*place, name), entry) for name, entry in inner.items()]
        elif isinstance(inner, list):
            unseen += [((*place, index), entry) for index, entry in enumerate(inner)]


def _is_json(content_type: str) -> bool:
    header = Message()
    header["content-type"] = content_type
    kind = header.get_content_type()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
