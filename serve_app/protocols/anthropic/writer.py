"""The message that answers one request: its content blocks, whole or as the events of a stream."""

from __future__ import annotations

import secrets
from typing import Any

import pydantic_core

from core.tools.answer import CallPart, ContentPart, ReasoningPart
from serve_app.http.errors import failure_of
from serve_app.http.output.choices import Piece
from serve_app.http.output.usage import Usage
from serve_app.http.service import Service
from serve_app.protocols.anthropic.bodies import (
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputDelta,
    MessageBody,
    MessageDelta,
    MessageStart,
    MessageStop,
    MessageTokensDetails,
    MessageUsage,
    SignatureDelta,
    StopFields,
    StopReason,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from serve_app.protocols.anthropic.errors import error_body
from serve_app.protocols.single_answer import AnswerPart, NamedEvents, SingleAnswerWriter, written


class MessageWriter(SingleAnswerWriter):
    """Answers a request for the name `model` with `prompt_tokens`."""

    def __init__(self, service: Service, model: str, prompt_tokens: int) -> None:
        super().__init__(service.tokenizer)
        self._head: dict[str, Any] = {"id": f"msg_{secrets.token_hex(12)}", "model": model}
        self._prompt_tokens = prompt_tokens
        self._blocks: list[Block] = []
        self._input = ""  # the JSON of the last block, if that is a call
        self._stop = StopFields(stop_reason="end_turn", stop_sequence=None)

    def opening(self, _index: int, /) -> bytes:
        return written(MessageStart(message=self._message(MessageUsage(input_tokens=self._prompt_tokens))))

    def failure(self, error: Exception) -> bytes:
        return written(error_body(failure_of(error)))

    def closing(self, usage: Usage) -> bytes:
        return written(MessageDelta(delta=self._stop, usage=self._usage(usage))) + written(MessageStop())

    def _body(self, usage: Usage) -> MessageBody:
        return self._message(self._usage(usage), **self._stop.model_dump())

    def _message(self, usage: MessageUsage, **stop: Any) -> MessageBody:
        return MessageBody(**self._head, content=self._blocks, usage=usage, **stop)

    def _usage(self, usage: Usage) -> MessageUsage:
        return MessageUsage(
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            output_tokens_details=MessageTokensDetails(thinking_tokens=self._reasoning_tokens),
            speculation=usage.speculation,
        )

    def _begin_item(self, part: AnswerPart) -> NamedEvents:
        block = _empty_block(part)
        self._blocks.append(block)
        yield BlockStart(index=len(self._blocks) - 1, content_block=block.model_copy())

    def _grow_item(self, part: AnswerPart) -> NamedEvents:
        match self._blocks[-1], part:
            case ThinkingBlock() as block, ReasoningPart(text=text):
                block.thinking += text
                yield self._delta(ThinkingDelta(thinking=text))
            case TextBlock() as block, ContentPart(text=text):
                block.text += text
                yield self._delta(TextDelta(text=text))
            case ToolUseBlock(), CallPart(arguments=json) if json:
                self._input += json
                yield self._delta(InputDelta(partial_json=json))

    def _end_item(self) -> NamedEvents:
        match self._blocks[-1]:
            case ThinkingBlock():
                yield self._delta(SignatureDelta())
            case ToolUseBlock() as block:
                block.input, self._input = _object(self._input), ""
        yield BlockStop(index=len(self._blocks) - 1)

    def _finish(self, last: Piece) -> NamedEvents:
        if self._blocks:
            yield from self._end_item()
        self._stop = _stop_of(last)

    def _delta(self, delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta) -> BlockDelta:
        return BlockDelta(index=len(self._blocks) - 1, delta=delta)


def _empty_block(part: AnswerPart) -> Block:
    match part:
        case ReasoningPart():
            return ThinkingBlock()
        case ContentPart():
            return TextBlock()
        case CallPart(name=name):
            return ToolUseBlock(id=f"toolu_{secrets.token_hex(12)}", name=name or "")


def _object(json: str) -> dict[str, Any]:
    """The object of a call's JSON, which may be cut off: what Anthropic's clients make of its parts in a stream."""
    try:
        value = pydantic_core.from_json(json or "{}", allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _stop_of(piece: Piece) -> StopFields:
    """Why the message ends with this piece."""
    if piece.finish_reason == "length":
        return StopFields(stop_reason="max_tokens", stop_sequence=None)
    if piece.calls == "whole":
        return StopFields(stop_reason="tool_use", stop_sequence=None)
    reason: StopReason = "end_turn" if piece.stop_string is None else "stop_sequence"
    return StopFields(stop_reason=reason, stop_sequence=piece.stop_string)
