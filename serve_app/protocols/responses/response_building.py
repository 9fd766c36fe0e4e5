"""The response to one request: whole, or as the events of a stream."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from serve_app.http.errors import describe
from serve_app.http.events import Events, event
from serve_app.http.output.choices import Piece
from serve_app.http.output.usage import Usage
from serve_app.http.schema.requests import ChatRequest
from serve_app.http.service import Service
from serve_app.protocols.responses.bodies import (
    ErrorEvent,
    IncompleteDetails,
    OutputTokensDetails,
    ResponseBody,
    ResponseEvent,
    ResponseFailure,
    ResponseUsage,
    StreamEvent,
)
from serve_app.protocols.responses.output import Output
from serve_app.protocols.responses.requests import ResponsesRequest


class ResponseBuilder(Events):
    """Builds the response to `body`, whose chat request is `chat`."""

    def __init__(self, body: ResponsesRequest, chat: ChatRequest, service: Service) -> None:
        self._head: dict[str, Any] = {
            "id": f"resp_{secrets.token_hex(12)}",
            "created_at": int(time.time()),
            "model": body.model,
            **_asked(body, chat),
        }
        self._tokenizer = service.tokenizer
        self._numbers = itertools.count()
        self._output = Output(self._numbers)
        self._reasoning_tokens = 0
        self._ended: Literal["completed", "incomplete"] = "completed"

    def answer(self, choices: Sequence[Piece], usage: Usage) -> ResponseBody:
        """The whole response."""
        for _ in self._pushed(choices[0]):
            pass
        return self._closed(usage)

    def opening(self, _index: int, /) -> bytes:
        body = self._body("in_progress")
        return self._written("response.created", body) + self._written("response.in_progress", body)

    def piece(self, _index: int, piece: Piece, _sofar: Callable[[], Usage]) -> bytes:
        return b"".join(event(told, told.type) for told in self._pushed(piece))

    def failure(self, error: Exception) -> bytes:
        fault: Any = describe(error)[2]["error"]
        failed = self._body("failed", error=ResponseFailure(message=fault["message"]))
        ended = self._written("response.failed", failed)
        code, message, param = fault["code"], fault["message"], fault["param"]
        told = ErrorEvent(sequence_number=next(self._numbers), code=code, message=message, param=param, error=fault)
        return ended + event(told, told.type)

    def closing(self, usage: Usage) -> bytes:
        return self._written(f"response.{self._ended}", self._closed(usage))

    def _pushed(self, piece: Piece) -> Iterable[StreamEvent]:
        if piece.delta.reasoning:
            self._reasoning_tokens += len(self._tokenizer.encode_answer(piece.delta.reasoning))
        yield from self._output.push(piece.delta)
        if piece.finish_reason is not None:
            self._ended = "incomplete" if piece.finish_reason == "length" else "completed"
            yield from self._output.finish(self._ended, piece.calls)

    def _closed(self, usage: Usage) -> ResponseBody:
        details = IncompleteDetails() if self._ended == "incomplete" else None
        return self._body(self._ended, incomplete_details=details, usage=self._usage(usage))

    def _body(self, status: str, **facts: Any) -> ResponseBody:
        return ResponseBody(**self._head, status=status, output=self._output.items, **facts)

    def _usage(self, usage: Usage) -> ResponseUsage:
        return ResponseUsage(
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=self._reasoning_tokens),
            total_tokens=usage.total_tokens,
            speculation=usage.speculation,
        )

    def _written(self, type_: str, body: ResponseBody) -> bytes:
        return event(ResponseEvent(type=type_, sequence_number=next(self._numbers), response=body), type_)


def _asked(body: ResponsesRequest, chat: ChatRequest) -> dict[str, Any]:
    """What a response repeats of its request."""
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "reasoning": {"effort": body.reasoning.effort, "summary": None},
        "temperature": chat.temperature,
        "text": {"format": body.text.format or {"type": "text"}},
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "tools": [tool.model_dump() for tool in body.tools],
        "top_p": chat.top_p,
    }
