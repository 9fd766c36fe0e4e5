"""An OpenAI-compatible server of somebody else's: nothing of ours in its chunks, and habits of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

WORDS = ("", "forty", "-", "two", "")
KEY = "sk-of-a-test"


class Foreign:
    """Answers five words a chunk each, the first and last empty; `bodies` is what it was asked.

    `usage` is what it says it used, if anything; with `wants_key` nobody else is let in; `models` None lists nothing.
    """

    def __init__(
        self, *, usage: int | None = None, wants_key: bool = False, models: tuple[str, ...] | None = ("them/13b",)
    ) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.app = FastAPI()
        self.refusal: tuple[int, str] | None = None
        self._usage = usage
        self._wants_key = wants_key
        self._models = models
        self.app.middleware("http")(self._guard)
        self.app.get("/v1/models", response_model=None)(self._list)
        self.app.post("/v1/chat/completions", response_model=None)(self._answer)

    async def _guard(self, request: Request, then: Any) -> Response:
        key = request.headers.get("authorization")
        self.keys.add(key)
        if self._wants_key and key != f"Bearer {KEY}":
            return JSONResponse({"error": {"message": f"not your key: {key}"}}, 401)
        answer: Response = await then(request)
        return answer

    async def _list(self) -> Response:
        if self._models is None:
            return Response("404 page not found", 404)
        return JSONResponse({"object": "list", "data": [{"id": model} for model in self._models]})

    async def _answer(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if body["model"] not in (self._models or ("hidden",)):
            return JSONResponse({"error": {"message": f"The model `{body['model']}` does not exist."}}, 404)
        if self.refusal is not None:
            status, message = self.refusal
            return Response(message, status)
        return StreamingResponse(self._chunks(), media_type="text/event-stream; charset=utf-8")

    async def _chunks(self) -> AsyncGenerator[str, None]:
        yield ": keep-alive\n\n"
        yield _event({"role": "assistant", "content": None})
        for word in WORDS:
            await asyncio.sleep(0)
            yield _event({"content": word})
        yield _event({}, "stop")
        if self._usage is not None:
            yield f"data:{json.dumps({'choices': [], 'usage': {'completion_tokens': self._usage}})}\n\n"
        yield "event: end\ndata: [DONE]\n\n"


def _event(delta: dict[str, Any], finish_reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return f"data: {json.dumps({'choices': [choice], 'usage': None})}\n\n"
