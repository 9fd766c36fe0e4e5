"""The content blocks of an answer, built from its pieces, and the events that tell of each step."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pydantic_core

from core.tools.answer import AnswerDelta, CallPart, ContentPart, ReasoningPart
from serve_app.protocols.anthropic.bodies import (
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputDelta,
    SignatureDelta,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)


class Content:
    """The blocks of one answer in order; the last is open until another begins or the answer ends."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._open: Block | None = None
        self._call: int | None = None  # the index of the open call
        self._input = ""  # its JSON

    def push(self, delta: AnswerDelta) -> Iterator[StreamEvent]:
        """Add what is new, in its order."""
        for part in delta.parts:
            match part:
                case ReasoningPart(text=text):
                    if not isinstance(self._open, ThinkingBlock):
                        yield from self._begin(ThinkingBlock())
                    yield self._add(ThinkingDelta(thinking=text))
                case ContentPart(text=text):
                    if not isinstance(self._open, TextBlock):
                        yield from self._begin(TextBlock())
                    yield self._add(TextDelta(text=text))
                case CallPart():
                    yield from self._tool_use(part)

    def finish(self) -> Iterator[StreamEvent]:
        """Close the open block, if there is one."""
        if self._open is None:
            return
        if isinstance(self._open, ThinkingBlock):
            yield self._add(SignatureDelta())
        elif isinstance(self._open, ToolUseBlock):
            self._open.input = _object(self._input)
        yield BlockStop(index=len(self.blocks) - 1)
        self._open, self._call, self._input = None, None, ""

    def _tool_use(self, call: CallPart) -> Iterator[StreamEvent]:
        if self._call != call.index:
            yield from self._begin(ToolUseBlock(id=f"toolu_{secrets.token_hex(12)}", name=call.name or ""))
            self._call = call.index
        if call.arguments:
            yield self._add(InputDelta(partial_json=call.arguments))

    def _begin(self, block: Block) -> Iterator[StreamEvent]:
        yield from self.finish()
        self.blocks.append(block)
        self._open = block
        yield BlockStart(index=len(self.blocks) - 1, content_block=block.model_copy())

    def _add(self, delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta) -> BlockDelta:
        match self._open, delta:
            case TextBlock() as block, TextDelta(text=text):
                block.text += text
            case ThinkingBlock() as block, ThinkingDelta(thinking=thinking):
                block.thinking += thinking
            case ToolUseBlock(), InputDelta(partial_json=json):
                self._input += json
        return BlockDelta(index=len(self.blocks) - 1, delta=delta)


def _object(json: str) -> dict[str, Any]:
    """The object of a call's JSON, which may be cut off: what Anthropic's clients make of its parts in a stream."""
    try:
        value = pydantic_core.from_json(json or "{}", allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
