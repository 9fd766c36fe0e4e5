"""The body of POST /v1/responses. The ranges of its values are those of a chat request, which it is turned into."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, field_validator
from pydantic_core import PydanticCustomError

from serve_app.http.schema.fields import Fields, Unsupported, field_error
from serve_app.http.schema.requests import SpeculationFields
from serve_app.http.schema.tools import MAX_TOOLS
from serve_app.http.schema.values import FAIL_FAST, PARTS, TEXT, at_most
from serve_app.protocols.responses.items import Input
from serve_app.protocols.translation import by_type, known_types

MAX_METADATA = 16
LOGPROBS = "message.output_text.logprobs"  # all else that `include` may name is about built-in tools and state


class FunctionTool(Fields):
    ignored = frozenset({"output_schema"})
    unsupported: ClassVar[Unsupported] = {
        "allowed_callers": (["direct"],),
        **dict.fromkeys(("async", "defer_loading"), (False,)),
    }

    type: Literal["function"] = Field(description="Built-in tools are not supported.")
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="The JSON schema of the arguments.")
    strict: bool | None = None


Tools = Annotated[list[Annotated[FunctionTool, known_types("tools", "function")]], FAIL_FAST, at_most(MAX_TOOLS)]


class FunctionChoice(Fields):
    type: Literal["function"]
    name: str


class AllowedFunctionChoice(FunctionChoice):
    """One of the tools by its name; the rest of its definition is in `tools`, and may be here again."""

    ignored = frozenset({"description", "parameters", "strict"})


class AllowedToolsChoice(Fields):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"] = Field(description="Whether one of them may or must be called.")
    tools: Annotated[
        list[Annotated[AllowedFunctionChoice, known_types("allowed tools", "function")]],
        FAIL_FAST,
        Field(min_length=1),
        at_most(MAX_TOOLS),
    ] = Field(description="Those of `tools` that may be called; the prompt has all.")


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(TEXT)]
    | Annotated[
        Annotated[FunctionChoice, Tag("<function>")] | Annotated[AllowedToolsChoice, Tag("<allowed_tools>")],
        by_type(),
        known_types("tool choices", "function", "allowed_tools"),
        Tag(PARTS),
    ],
    Discriminator(lambda value: TEXT if isinstance(value, str) else PARTS),
]


class TextFields(Fields):
    unsupported: ClassVar[Unsupported] = {"verbosity": ("medium",)}

    format: dict[str, Any] | None = Field(
        None, description="{type: text}, {type: json_object} or {type: json_schema, name, schema, strict}."
    )


class ReasoningFields(Fields):
    ignored = frozenset({"summary", "generate_summary", "context", "mode"})

    effort: str | None = Field(None, description="As `reasoning_effort` of a chat request.")


class ResponsesRequest(Fields):
    """POST /v1/responses."""

    ignored = frozenset(
        {"user", "service_tier", "safety_identifier", "access_programs", "image", "stream_options", "max_tool_calls"}
        | {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "client_metadata"}
    )
    unsupported: ClassVar[Unsupported] = {
        "top_logprobs": (0,),
        "truncation": ("disabled",),
        "moderation": (),
        "context_management": ([],),
    }
    of_state: ClassVar[Unsupported] = {
        "previous_response_id": (),
        "conversation": (),
        "prompt": (),
        "background": (False,),
    }

    model: str = Field(description="The model's name, as /v1/models lists it.")
    input: Input = Field(description="The whole conversation: what the user says, or a list of items.")
    instructions: str | None = Field(None, description="A system message before the input.")
    max_output_tokens: int | None = Field(None, ge=1, description="Most tokens of the answer, reasoning included.")
    temperature: float | None = Field(None, description="0 takes the likeliest token; 1 if absent.")
    top_p: float | None = Field(None, description="Keep the likeliest tokens up to this probability mass.")
    top_k: int | None = Field(None, description="Keep this many of the likeliest tokens; not in OpenAI's API.")
    seed: int | None = Field(None, description="Equal seeds give equal answers; not in OpenAI's API.")
    stream: bool = Field(False, description="Send server-sent events.")
    store: bool = Field(
        True, description="False: the answer is not remembered for later requests. No answer can be retrieved."
    )
    metadata: Annotated[dict[str, str], at_most(MAX_METADATA)] | None = Field(None, description="Sent back.")
    tools: Tools = Field([], description="Calls of them are for the client to make.")
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextFields = Field(TextFields(), description="The form of the answer.")
    reasoning: ReasoningFields = ReasoningFields()
    include: list[str] = Field([], description="What it may name is not in answers of this service.")
    speculation: SpeculationFields | None = Field(None, description="TaskSpec's own.")

    @classmethod
    def _check_name(cls, name: str, value: object) -> None:
        if name not in cls.of_state:
            super()._check_name(name, value)
        elif value is not None and value not in cls.of_state[name]:
            message = f"'{name}' is not supported: this service keeps no state; send the whole conversation in 'input'"
            raise field_error(name, message)

    @field_validator("include")
    @classmethod
    def _without_logprobs(cls, include: list[str]) -> list[str]:
        if LOGPROBS in include:
            raise PydanticCustomError("include", f"'{LOGPROBS}' is not supported; /v1/chat/completions has logprobs")
        return include
