"""The message that answers one request: whole, or as the events of a stream."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from serve_app.http.events import Events, event
from serve_app.http.output.choices import Piece
from serve_app.http.output.usage import Usage
from serve_app.http.service import Service
from serve_app.protocols.anthropic.bodies import (
    MessageBody,
    MessageDelta,
    MessageStart,
    MessageStop,
    MessageUsage,
    OutputTokensDetails,
    Stop,
    StopReason,
    StreamEvent,
)
from serve_app.protocols.anthropic.errors import error_body
from serve_app.protocols.anthropic.output import Content


class MessageBuilder(Events):
    """Builds the answer to a request for the name `model` with `prompt_tokens`."""

    def __init__(self, service: Service, model: str, prompt_tokens: int) -> None:
        self._head: dict[str, Any] = {"id": f"msg_{secrets.token_hex(12)}", "model": model}
        self._prompt_tokens = prompt_tokens
        self._tokenizer = service.tokenizer
        self._content = Content()
        self._stop = Stop(stop_reason="end_turn", stop_sequence=None)
        self._thinking_tokens = 0

    def answer(self, choices: Sequence[Piece], usage: Usage) -> MessageBody:
        """The whole message."""
        for _ in self._pushed(choices[0]):
            pass
        return self._body(self._usage(usage), **self._stop.model_dump())

    def opening(self, _index: int, /) -> bytes:
        return _written(MessageStart(message=self._body(MessageUsage(input_tokens=self._prompt_tokens))))

    def piece(self, _index: int, piece: Piece, _sofar: Callable[[], Usage]) -> bytes:
        return b"".join(map(_written, self._pushed(piece)))

    def failure(self, error: Exception) -> bytes:
        return _written(error_body(error))

    def closing(self, usage: Usage) -> bytes:
        return _written(MessageDelta(delta=self._stop, usage=self._usage(usage))) + _written(MessageStop())

    def _pushed(self, piece: Piece) -> Iterable[StreamEvent]:
        if piece.delta.reasoning:
            self._thinking_tokens += len(self._tokenizer.encode_answer(piece.delta.reasoning))
        yield from self._content.push(piece.delta)
        if piece.finish_reason is not None:
            yield from self._content.finish()
            self._stop = _stop_of(piece)

    def _body(self, usage: MessageUsage, **stop: Any) -> MessageBody:
        return MessageBody(**self._head, content=self._content.blocks, usage=usage, **stop)

    def _usage(self, usage: Usage) -> MessageUsage:
        return MessageUsage(
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputTokensDetails(thinking_tokens=self._thinking_tokens),
            speculation=usage.speculation,
        )


def _stop_of(piece: Piece) -> Stop:
    """Why the message ends with this piece."""
    if piece.finish_reason == "length":
        return Stop(stop_reason="max_tokens", stop_sequence=None)
    if piece.calls == "whole":
        return Stop(stop_reason="tool_use", stop_sequence=None)
    reason: StopReason = "end_turn" if piece.stop_string is None else "stop_sequence"
    return Stop(stop_reason=reason, stop_sequence=piece.stop_string)


def _written(told: StreamEvent) -> bytes:
    return event(told, told.type)
