"""The bodies of requests that generate, field by field: their names, types, limits and defaults.

Limits that depend on the service (its context, tasks, choices) are checked in `batch` and `prompts`; the ranges of
sampling parameters in `core.sampling.params`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, cast

from pydantic import Field, model_validator

from core.generation import MAX_SPECULATIVE_TOKENS
from core.sampling.params import INT64, MAX_STOPS, REPETITION_PENALTIES
from serve_app.http.schema import unsupported as unsupported_fields
from serve_app.http.schema.fields import Fields, field_error
from serve_app.http.schema.messages import Content, Messages, ToolUse, text_of
from serve_app.http.schema.structured import StructuredFields
from serve_app.http.schema.values import (
    TEXT,
    TOKENS,
    LogitBias,
    Penalty,
    Prompt,
    Received,
    Stop,
    StopTokens,
    TopLogprobs,
    kind,
)

COMPLETION_MAX_TOKENS = 16


class SpeculationFields(Fields):
    """The speculation of this request; it never changes the answer."""

    enabled: bool = Field(True, description="Drafts may propose tokens.")
    num_speculative_tokens: int | None = Field(
        None,
        ge=0,
        le=MAX_SPECULATIVE_TOKENS,
        description="Most tokens a draft may propose per target pass, 0 for none. If it is absent the service's limit "
        "applies and the service decides when drafting pays; if it is given, the request is always drafted for.",
    )
    task: str | None = Field(None, description="The task whose draft proposes; the router's choice if absent.")


class StreamOptions(Fields):
    ignored = frozenset({"include_obfuscation"})

    include_usage: bool = Field(False, description="Send `usage` in a last chunk, without choices.")
    continuous_usage_stats: bool = Field(False, description="Send `usage` in every chunk, as it is by then.")
    include_speculation: bool = Field(
        False,
        description="TaskSpec's own: each chunk says which source proposed its run, whose draft serves the choice, and "
        "in which pass.",
    )


class GenerationFields(StructuredFields):
    """The fields of both bodies."""

    ignored = frozenset(
        {"user", "metadata", "service_tier", "parallel_tool_calls", "safety_identifier"}
        | {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "include_reasoning"}
        | {"guided_decoding_backend"}
    )

    model: str = Field(description="The model's name, as /v1/models lists it.")
    n: int = Field(1, ge=1, description="Choices per prompt.")
    max_tokens: int | None = Field(None, ge=1, description="Most tokens per choice.")
    max_completion_tokens: int | None = Field(None, ge=1, description="The newer name of `max_tokens`.")
    temperature: float = Field(1.0, ge=0, le=2, description="0 takes the likeliest token.")
    top_p: float = Field(
        1.0, ge=0, le=1, description="Keep the likeliest tokens up to this probability mass; 0 takes the likeliest."
    )
    top_k: int = Field(0, ge=-1, lt=INT64, description="Keep this many of the likeliest tokens; 0 or -1 keeps all.")
    min_p: float = Field(0.0, ge=0, le=1, description="Keep tokens at least this fraction as likely as the likeliest.")
    seed: int | None = Field(None, ge=-INT64, lt=INT64, description="Equal seeds give equal answers; random if absent.")
    stop: Stop | None = Field(None, description=f"Up to {MAX_STOPS} strings; the answer ends before the first of them.")
    stop_token_ids: StopTokens = Field([], description="Tokens that end the answer, as the end-of-sequence token does.")
    include_stop_str_in_output: bool = Field(False, description="Keep the stop string or token in the text.")
    skip_special_tokens: bool = Field(True, description="False: the text has the special tokens of the answer.")
    ignore_eos: bool = Field(False, description="True: no end-of-sequence token ends the answer. Not with a grammar.")
    min_tokens: int = Field(0, ge=0, description="No token ends the answer before it has so many. Not with a grammar.")
    repetition_penalty: float = Field(
        1.0,
        ge=REPETITION_PENALTIES[0],
        le=REPETITION_PENALTIES[1],
        description="Divides positive logits of the tokens of prompt and answer, and multiplies negative ones.",
    )
    presence_penalty: Penalty = Field(0.0, description="Subtracted once from the logit of every generated token.")
    frequency_penalty: Penalty = Field(0.0, description="Subtracted from a token's logit each time it was generated.")
    logit_bias: LogitBias = Field({}, description="Values added to the logits of tokens, by token id as a string.")
    stream: bool = Field(False, description="Send server-sent events, one per committed run.")
    stream_options: StreamOptions | None = Field(None, description="Only with `stream`.")
    store: bool = Field(
        True, description="False: the answer is not remembered for later requests, nor kept for training."
    )
    speculation: SpeculationFields = Field(SpeculationFields(), description="TaskSpec's own.")
    continue_from: Received | None = Field(
        None,
        description="TaskSpec's own: what the client has of an answer that was cut, the `token_ids` of its chunks or "
        "its content. The rest is sent, and nothing else; needs the seed of that answer, or temperature 0.",
    )

    @property
    @abstractmethod
    def alternatives(self) -> int | None:
        """Alternatives to report per token; None for no logprobs at all."""

    @property
    def prompt_alternatives(self) -> int | None:
        """The same for the tokens of the prompt."""
        return None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @model_validator(mode="after")
    def _agree(self) -> GenerationFields:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise field_error("max_tokens", "give max_tokens or max_completion_tokens, not both")
        if self.stream_options is not None and not self.stream:
            raise field_error("stream_options", "stream_options needs stream to be true")
        if self.continue_from is not None:
            self._check_continuation()
        return self

    def _check_continuation(self) -> None:
        if self.n > 1:
            raise field_error("continue_from", "continue_from continues one answer; set n to 1")
        if self.seed is None and self.temperature > 0 and self.top_p > 0:
            message = "continue_from needs the seed of the answer that was cut, which its first chunk has"
            raise field_error("seed", message)


class CompletionRequest(GenerationFields):
    """POST /v1/completions."""

    unsupported = unsupported_fields.COMPLETION

    prompt: Prompt = Field(description="Choices are numbered prompt by prompt: index = prompt * n + choice.")
    max_tokens: int | None = Field(
        None,
        ge=0,
        description=f"Most tokens per choice, {COMPLETION_MAX_TOKENS} if absent; 0 only reads the prompt, behind "
        "which the context must have room for one token more.",
    )
    echo: bool = Field(False, description="True: the text begins with the prompt, and so do the logprobs.")
    add_special_tokens: bool = Field(True, description="Begin text prompts with what the tokenizer adds (BOS).")
    logprobs: TopLogprobs | None = Field(None, description="Logprobs of the tokens and of this many likeliest ones.")

    @property
    def token_limit(self) -> int:
        """The tokens to generate, at least one; see `Ending.reads_only`."""
        limit = self.max_completion_tokens if self.max_tokens is None else self.max_tokens
        return max(1, COMPLETION_MAX_TOKENS if limit is None else limit)

    @property
    def alternatives(self) -> int | None:
        return self.logprobs

    @property
    def prompt_alternatives(self) -> int | None:
        return self.logprobs if self.echo else None

    @property
    def prompts(self) -> dict[str, str | list[int]]:
        """Every prompt by the name of its field."""
        if kind(self.prompt) in (TEXT, TOKENS):
            return {"prompt": cast("str | list[int]", self.prompt)}
        return {f"prompt[{index}]": cast("str | list[int]", prompt) for index, prompt in enumerate(self.prompt)}


class PredictionFields(Fields):
    """What the client expects the answer to be; a wrong expectation changes no answer."""

    type: Literal["content"]
    content: Content = Field(description="Most of the answer, such as a file that is to be changed a little.")

    @property
    def text(self) -> str:
        return text_of(self.content)


class ChatRequest(GenerationFields, ToolUse):
    """POST /v1/chat/completions."""

    ignored = GenerationFields.ignored - {"parallel_tool_calls", "include_reasoning"}
    unsupported = unsupported_fields.CHAT

    messages: Messages = Field(description="The conversation so far, oldest first.")
    prediction: PredictionFields | None = Field(None, description="The expected answer, proposed where it fits.")
    logprobs: bool = Field(False, description="Report the logprobs of the tokens.")
    top_logprobs: TopLogprobs | None = Field(None, description="Number of likeliest tokens to report for each.")

    @property
    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @model_validator(mode="after")
    def _logprobs_asked(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise field_error("top_logprobs", "top_logprobs needs logprobs to be true")
        return self
