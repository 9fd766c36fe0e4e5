"""The bodies of POST /v1/messages and /v1/messages/count_tokens. The ranges of values are those of a chat request."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from serve_app.http.schema.fields import Fields, Unsupported, field_error
from serve_app.http.schema.messages import Effort
from serve_app.http.schema.requests import SpeculationFields
from serve_app.http.schema.tools import MAX_TOOLS
from serve_app.http.schema.values import FAIL_FAST, Stop, at_most
from serve_app.protocols.anthropic.blocks import MessageParams, Text
from serve_app.protocols.translation import known_types


class ToolParam(Fields):
    ignored = frozenset({"cache_control", "eager_input_streaming", "input_examples"})
    unsupported: ClassVar[Unsupported] = {"allowed_callers": (["direct"],), "defer_loading": (False,)}

    type: Literal["custom"] = Field("custom", description="Anthropic's own tools are not supported.")
    name: str
    description: str | None = None
    input_schema: dict[str, Any] = Field(description="The JSON schema of the tool's input.")
    strict: bool | None = None


ToolParams = Annotated[
    list[Annotated[ToolParam, known_types("tools", "custom", default="custom")]], FAIL_FAST, at_most(MAX_TOOLS)
]


class ToolChoiceParam(Fields):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = Field(None, description="Of the one tool to call, with the type `tool`.")
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _named(self) -> ToolChoiceParam:
        if (self.type == "tool") != (self.name is not None):
            raise field_error("name", "the type 'tool' needs the name of one, and no other type takes it")
        return self


class ThinkingFields(Fields):
    ignored = frozenset({"budget_tokens", "display"})

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]


class OutputConfig(Fields):
    ignored = frozenset({"task_budget"})

    effort: Effort | None = Field(
        None, description="For templates that know `reasoning_effort` or `enable_thinking`; others are told in vain."
    )
    format: dict[str, Any] | None = Field(None, description="{type: json_schema, schema}.")


class PromptFields(Fields):
    """What both bodies have: the conversation, and what the chat template is told beside it."""

    ignored = frozenset(
        {"metadata", "service_tier", "speed", "cache_control", "inference_geo", "diagnostics", "context_management"}
        | {"betas", "anthropic_beta", "anthropic_version", "billing_policy", "fallbacks", "fallback_credit_token"}
        | {"user_profile_id", "workspace_id"}
    )
    unsupported: ClassVar[Unsupported] = {
        "container": (),
        "mcp_servers": ([],),
        "compaction": (),
        "thread": (),
    }

    model: str = Field(description="The model's name, as /v1/models lists it.")
    messages: MessageParams = Field(
        description="The conversation; the answer goes on with the text of an assistant's last."
    )
    system: Text | None = Field(None, description="A system message before the others.")
    thinking: ThinkingFields | None = Field(
        None, description="`disabled` tells the chat template so, all else that it may think; there is no budget."
    )
    tools: ToolParams = Field([], description="Calls of them are for the client to make.")
    tool_choice: ToolChoiceParam | None = None
    output_config: OutputConfig = OutputConfig()


class CountTokensRequest(PromptFields):
    """POST /v1/messages/count_tokens."""


class MessagesRequest(PromptFields):
    """POST /v1/messages."""

    max_tokens: int = Field(
        ge=1,
        description="Most tokens of the answer, thinking included; more than the context has room for means all of it.",
    )
    stop_sequences: Stop | None = Field(None, description="Strings before the first of which the answer ends.")
    temperature: float | None = Field(None, description="0 takes the likeliest token; 1 if absent.")
    top_p: float | None = Field(None, description="Keep the likeliest tokens up to this probability mass.")
    top_k: int | None = Field(None, description="Keep this many of the likeliest tokens.")
    stream: bool = Field(False, description="Send server-sent events.")
    seed: int | None = Field(None, description="Equal seeds give equal answers; not in Anthropic's API.")
    store: bool = Field(True, description="False: the answer is not remembered; not in Anthropic's API.")
    speculation: SpeculationFields | None = Field(None, description="TaskSpec's own.")
