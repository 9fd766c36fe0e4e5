"""An application whose streams are cut, as by a proxy that dies: the connection closes in the middle of an answer."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send


class Cut(Exception):
    """Ends the connection."""


class Cutting(FastAPI):
    """Passes requests on to `app`; the answers to POSTs end after so many messages each, then none does.

    With None an answer is whole, with 0 the connection closes without a byte.
    """

    def __init__(self, app: FastAPI, *limits: int | None) -> None:
        super().__init__()
        self.requests = 0
        self._app = app
        self._limits: Iterator[int | None] = iter(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self.requests += 1
        limit = next(self._limits, None)
        count = 0

        async def send_some(message: Message) -> None:
            nonlocal count
            if count == limit:
                raise Cut
            count += 1
            await send(message)

        await self._app(scope, receive, send_some)
