"""What /v1/messages sends: the message, the blocks of its content, and the events of a stream."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from serve_app.http.output.usage import SpeculationUsage
from serve_app.protocols.single_answer import NamedEvent

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextBlock(BaseModel):
    type: Literal["text"] = "text"
    text: str = ""
    citations: None = None


class ThinkingBlock(BaseModel):
    type: Literal["thinking"] = "thinking"
    thinking: str = ""
    signature: str = Field("", description="Empty: what is sent back is not checked.")


class ToolUseBlock(BaseModel):
    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any] = {}


Block = TextBlock | ThinkingBlock | ToolUseBlock


class MessageTokensDetails(BaseModel):
    thinking_tokens: int = Field(description="Tokens of the thinking's text.")


class MessageUsage(BaseModel):
    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = Field(0, description="Committed tokens, the end-of-sequence token included.")
    output_tokens_details: MessageTokensDetails | None = None
    speculation: SpeculationUsage | None = Field(None, description="Of a finished answer.")


class MessageBody(BaseModel):
    """The answer."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class TokenCount(BaseModel):
    input_tokens: int


class MessageStart(NamedEvent):
    type: Literal["message_start"] = "message_start"
    message: MessageBody


class BlockStart(NamedEvent):
    type: Literal["content_block_start"] = "content_block_start"
    index: int
    content_block: Block


class TextDelta(BaseModel):
    type: Literal["text_delta"] = "text_delta"
    text: str


class ThinkingDelta(BaseModel):
    type: Literal["thinking_delta"] = "thinking_delta"
    thinking: str


class SignatureDelta(BaseModel):
    type: Literal["signature_delta"] = "signature_delta"
    signature: str = ""


class InputDelta(BaseModel):
    type: Literal["input_json_delta"] = "input_json_delta"
    partial_json: str


class BlockDelta(NamedEvent):
    type: Literal["content_block_delta"] = "content_block_delta"
    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockStop(NamedEvent):
    type: Literal["content_block_stop"] = "content_block_stop"
    index: int


class StopFields(BaseModel):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(NamedEvent):
    type: Literal["message_delta"] = "message_delta"
    delta: StopFields
    usage: MessageUsage


class MessageStop(NamedEvent):
    type: Literal["message_stop"] = "message_stop"


class ErrorObject(BaseModel):
    type: str
    message: str


class ErrorResponse(NamedEvent):
    """Also the event that ends a stream whose generation failed."""

    type: Literal["error"] = "error"
    error: ErrorObject
