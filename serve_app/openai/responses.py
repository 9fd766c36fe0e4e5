"""The shapes of what the HTTP face says, whole and streamed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from core.generation import FinishReason

TokenIds = Annotated[list[int], Field(description="The tokens committed, the end-of-sequence token included.")]


def _absent(value: object) -> bool:
    return value is None


class SpeculationUsage(BaseModel):
    task: str | None = Field(
        description="The task whose draft proposed, the last one where it changed; general where none was wanted."
    )
    proposed: int = Field(description="Proposed tokens that were put to the target.")
    accepted: int
    acceptance_rate: float | None = Field(description="accepted / proposed; null where nothing was proposed.")
    tokens_per_target_pass: float | None = Field(
        description="Tokens committed per pass, plain passes included, the prefill not; null without such a pass."
    )


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int = Field(description="Committed tokens, the end-of-sequence token included.")
    total_tokens: int
    speculation: SpeculationUsage


class SpeculationCounts(BaseModel):
    proposed: int
    accepted: int


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[ContentLogprob]
    refusal: None = None


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    token_ids: TokenIds
    speculation: SpeculationCounts


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    token_ids: TokenIds
    speculation: SpeculationCounts


class Delta(BaseModel):
    role: Literal["assistant"] | None = Field(None, exclude_if=_absent, description="Only in a choice's first chunk.")
    content: str


class ChunkChoice(BaseModel):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    token_ids: TokenIds
    speculation: SpeculationCounts


class Completion(BaseModel):
    """Also a chunk of a streamed one: OpenAI gives both the same shape."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | None = Field(None, exclude_if=_absent, description="In a stream only in the chunk that ends it.")


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatCompletionChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = Field(None, exclude_if=_absent, description="Only in the chunk that ends the stream.")


Answer = Completion | ChatCompletion | ChatCompletionChunk


class ModelCard(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class Health(BaseModel):
    status: Literal["ok", "unavailable"]


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail
