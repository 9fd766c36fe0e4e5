"""What /v1/responses sends: the response, the items of its output, and the events of a stream."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from serve_app.http.errors import ErrorDetail
from serve_app.http.output.usage import SpeculationUsage
from serve_app.protocols.single_answer import NamedEvent

Status = Literal["in_progress", "completed", "incomplete"]


class OutputText(BaseModel):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class ReasoningText(BaseModel):
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


Part = OutputText | ReasoningText


class MessageItem(BaseModel):
    type: Literal["message"] = "message"
    id: str
    status: Status = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: list[OutputText] = []


class ReasoningItem(BaseModel):
    type: Literal["reasoning"] = "reasoning"
    id: str
    status: Status = "in_progress"
    summary: list[Any] = []
    content: list[ReasoningText] = []


class FunctionCallItem(BaseModel):
    type: Literal["function_call"] = "function_call"
    id: str
    status: Status = "in_progress"
    call_id: str
    name: str
    arguments: str = Field("", description="JSON.")


Item = MessageItem | ReasoningItem | FunctionCallItem


class InputTokensDetails(BaseModel):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(BaseModel):
    reasoning_tokens: int = Field(description="Tokens of the reasoning's text.")


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens: int = Field(description="Committed tokens, the end-of-sequence token included.")
    output_tokens_details: OutputTokensDetails
    total_tokens: int
    speculation: SpeculationUsage


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseFailure(BaseModel):
    code: Literal["server_error"] = "server_error"
    message: str


class ResponseBody(BaseModel):
    """The answer, and what was asked for."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False] = False
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[Item]
    parallel_tool_calls: bool
    previous_response_id: None = None
    reasoning: dict[str, Any]
    temperature: float
    text: dict[str, Any]
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None


class ResponseStreamEvent(NamedEvent):
    sequence_number: int


class ItemPlace(ResponseStreamEvent):
    """An event about the item at `output_index`."""

    item_id: str
    output_index: int


class PartPlace(ItemPlace):
    """An event about the one part of its content."""

    content_index: int = 0


class ResponseEvent(ResponseStreamEvent):
    type: Literal[
        "response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed"
    ]
    response: ResponseBody


class ItemEvent(ResponseStreamEvent):
    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: Item


class PartEvent(PartPlace):
    type: Literal["response.content_part.added", "response.content_part.done"]
    part: Part


class OutputTextDelta(PartPlace):
    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    delta: str
    logprobs: list[Any] = Field([])


class OutputTextDone(PartPlace):
    type: Literal["response.output_text.done"] = "response.output_text.done"
    text: str
    logprobs: list[Any] = Field([])


class ReasoningDelta(PartPlace):
    type: Literal["response.reasoning_text.delta"] = "response.reasoning_text.delta"
    delta: str


class ReasoningDone(PartPlace):
    type: Literal["response.reasoning_text.done"] = "response.reasoning_text.done"
    text: str


class ArgumentsDelta(ItemPlace):
    type: Literal["response.function_call_arguments.delta"] = "response.function_call_arguments.delta"
    delta: str


class ArgumentsDone(ItemPlace):
    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"
    arguments: str


class ErrorEvent(ResponseStreamEvent):
    """OpenAI's clients raise for `error`; its reference has the other fields."""

    type: Literal["error"] = "error"
    code: str | None
    message: str
    param: str | None
    error: ErrorDetail
