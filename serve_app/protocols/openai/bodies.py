"""The response bodies, whole and streamed, field by field."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from core.generation import FinishReason, Source
from serve_app.http.output.usage import SpeculationCounts, Usage, absent

TokenIds = Annotated[
    list[int],
    Field(description="The tokens committed; those that ended the answer are among them, and have logprobs, too."),
]


Seed = Annotated[
    int | None,
    Field(
        exclude_if=absent,
        description="That of the request, or the one drawn for it: the same request with it has the same answer. In a "
        "stream only the first chunk of a choice has it, and none the answer to a request with several prompts.",
    ),
]


class ChoiceSpeculation(SpeculationCounts):
    accepted_characters: int | None = Field(
        None,
        exclude_if=absent,
        description="Only in a stream: how many Unicode characters, the chunk's first, accepted tokens completed.",
    )


class RunSpeculation(ChoiceSpeculation):
    """That of a chunk where `stream_options` has `include_speculation`."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    source: Source | None = Field(description="Who proposed, as in `usage.speculation.sources`; null if nobody did.")
    task: str = Field(description="The task whose draft serves the choice.")
    number: int = Field(alias="pass", description="The target pass of the choice; 0 is the one over the prompt.")


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
    token_logprobs: list[float | None] = Field(description="With `echo`, null for the first token of the prompt.")
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    token_ids: TokenIds
    speculation: RunSpeculation | ChoiceSpeculation


class CalledFunction(BaseModel):
    name: str
    arguments: str = Field(description="JSON of an object; broken off if the answer was.")


class ToolCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None = Field(description="Null if there are calls and nothing else.")
    refusal: None = None
    reasoning_content: str | None = Field(None, exclude_if=absent)
    tool_calls: list[ToolCall] | None = Field(None, exclude_if=absent)


ChatFinishReason = FinishReason | Literal["tool_calls"]


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    token_ids: TokenIds
    speculation: ChoiceSpeculation


class FunctionDelta(BaseModel):
    name: str | None = Field(None, exclude_if=absent)
    arguments: str


class ToolCallDelta(BaseModel):
    """What is new of a call. Only its first has id, type and name."""

    index: int
    id: str | None = Field(None, exclude_if=absent)
    type: Literal["function"] | None = Field(None, exclude_if=absent)
    function: FunctionDelta


class Delta(BaseModel):
    role: Literal["assistant"] | None = Field(None, exclude_if=absent, description="Only in a choice's first chunk.")
    content: str | None = Field(None, exclude_if=absent)
    reasoning_content: str | None = Field(None, exclude_if=absent)
    tool_calls: list[ToolCallDelta] | None = Field(None, exclude_if=absent)


class ChunkChoice(BaseModel):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    token_ids: TokenIds
    speculation: RunSpeculation | ChoiceSpeculation


class Completion(BaseModel):
    """Also a chunk of a streamed one: in OpenAI's API both have the same shape."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    seed: Seed = None
    usage: Usage | None = Field(None, exclude_if=absent, description="In a stream only in the chunk that ends it.")


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    seed: Seed = None
    usage: Usage


class ChatCompletionChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    seed: Seed = None
    usage: Usage | None = Field(None, exclude_if=absent, description="Only in the chunk that ends the stream.")


class ModelCard(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    root: str = Field(description="The model's own name, of which `id` may be an alias.")


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]
