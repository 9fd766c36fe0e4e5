"""Conversations in a request body, and the fields that say how the chat template renders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import pydantic_core
from pydantic import Discriminator, Field, Tag, model_validator

from core.text.chat_template import Rendering
from serve_app.http.schema import unsupported as unsupported_fields
from serve_app.http.schema.fields import Fields, field_error
from serve_app.http.schema.tools import MAX_TOOLS, ToolChoice, Tools, callable_names, check_choice, check_names
from serve_app.http.schema.values import CONVERSATION, FAIL_FAST, MAX_MESSAGES, MAX_PARTS, PARTS, TEXT, at_most, takes

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class TextPart(Fields):
    unsupported = unsupported_fields.TEXT_PART

    type: Literal["text"] = Field(description="Images, audio and files are not supported.")
    text: str


class RefusalPart(Fields):
    """What a model wrote instead of an answer, which is text here."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


Part = Annotated[
    Annotated[TextPart, Tag("<text>")] | Annotated[RefusalPart, Tag("<refusal>")],
    Discriminator(
        lambda value: "<refusal>" if isinstance(value, dict) and value.get("type") == "refusal" else "<text>"
    ),
]
Content = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[list[Part], FAIL_FAST, at_most(MAX_PARTS), Tag(PARTS)],
    takes("a string or a list of text parts", empty=PARTS),
]


def text_of(content: str | list[TextPart | RefusalPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


class CalledFunctionParam(Fields):
    name: str
    arguments: str = Field(description="JSON.")


class Call(Fields):
    """A call that the model made."""

    ignored = frozenset({"index"})

    id: str
    type: Literal["function"] = "function"
    function: CalledFunctionParam


class Message(Fields):
    ignored = frozenset({"name", "annotations"})
    unsupported = unsupported_fields.MESSAGE

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description="`developer` means `system`; `tool` has what a called tool returned."
    )
    content: Content | None = Field(
        None, description="May be null where there are tool_calls or a refusal, and in messages of the role `tool`."
    )
    refusal: str = Field("", description="The assistant's, which is text like the content.")
    tool_calls: Annotated[list[Call], FAIL_FAST, at_most(MAX_TOOLS)] = Field([], description="The assistant's only.")
    tool_call_id: str | None = Field(None, description="Of the call that a message of the role `tool` answers.")
    reasoning_content: str = Field("", description="The assistant's reasoning, for templates that want it back.")
    reasoning: str = Field("", description="Another name of `reasoning_content`.")

    @property
    def text(self) -> str:
        return ("" if self.content is None else text_of(self.content)) + self.refusal

    @property
    def size(self) -> int:
        """Characters."""
        called = sum(len(call.function.name) + len(call.function.arguments) for call in self.tool_calls)
        return len(self.text) + called + len(self.reasoning_content or self.reasoning)

    @model_validator(mode="after")
    def _of_its_role(self) -> Message:
        if self.role != "assistant":
            for name in ("tool_calls", "reasoning_content", "reasoning", "refusal"):
                if getattr(self, name):
                    raise field_error(name, f"only a message of the role 'assistant' has {name}")
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise field_error("tool_call_id", "tool_call_id is required in messages of the role 'tool', and only there")
        if self.content is None and not (self.tool_calls or self.refusal or self.role == "tool"):
            raise field_error("content", "content is required; only an assistant's message with tool_calls may lack it")
        if self.content == [] and self.role not in ("assistant", "tool"):
            raise field_error("content", "content must be a string or a list of text parts that is not empty")
        return self


Messages = Annotated[list[Message], FAIL_FAST, Field(min_length=1), CONVERSATION, at_most(MAX_MESSAGES)]


def for_template(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as chat templates take them."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls}
    return [_for_template(message, names) for message in messages]


def _for_template(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role, "content": message.text}
    if reasoning := message.reasoning_content or message.reasoning:
        shown["reasoning_content"] = reasoning
    if message.tool_calls:
        shown["tool_calls"] = [_call_for_template(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        shown["tool_call_id"] = message.tool_call_id
        if name := names.get(message.tool_call_id):
            shown["name"] = name
    return shown


def _call_for_template(call: Call) -> dict[str, Any]:
    """Templates want the arguments as an object; what is none, or none that UTF-8 can write, stays text."""
    try:
        arguments = pydantic_core.from_json(call.function.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = call.function.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


class TemplateFields(Fields):
    """How the chat template renders the messages."""

    add_generation_prompt: bool | None = Field(
        None, description="Open an answer behind the messages; if absent, unless the last message is continued."
    )
    continue_final_message: bool = Field(False, description="The answer goes on with the last message's text.")
    special_tokens_in_content: bool = Field(
        False, description="True: special tokens in messages, such as </s>, become tokens; otherwise they stay text."
    )
    chat_template_kwargs: dict[str, Any] = Field({}, description="Variables of the chat template, by name.")
    tools: Tools = Field([], description=f"Up to {MAX_TOOLS} functions that the model may call.")

    @property
    def rendering(self) -> Rendering:
        opened = self.add_generation_prompt
        return Rendering(
            add_generation_prompt=not self.continue_final_message if opened is None else opened,
            continue_final_message=self.continue_final_message,
            special_tokens_in_content=self.special_tokens_in_content,
            tools=[tool.for_template for tool in self.tools],
            variables=self.chat_template_kwargs,
        )

    @model_validator(mode="after")
    def _open_or_continue(self) -> TemplateFields:
        if self.continue_final_message and self.add_generation_prompt:
            message = "continue_final_message goes on with the last message; leave out add_generation_prompt"
            raise field_error("continue_final_message", message)
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> TemplateFields:
        check_names(self.tools)
        return self


class ToolUse(TemplateFields):
    """Whether the model may or must call tools, and how much of its reasoning is answered."""

    tool_choice: ToolChoice | None = Field(
        None,
        description="`none`, `auto` (if absent), `required`, the function that must be called, or those that may be.",
    )
    parallel_tool_calls: bool = Field(True, description="False: at most one call in an answer.")
    include_reasoning: bool = Field(True, description="False: the reasoning is left out of the answer.")
    reasoning_effort: Effort | None = Field(
        None, description="For templates that know it, or `enable_thinking`, where all but `none` think."
    )

    @property
    def callable_names(self) -> tuple[str, ...]:
        """The tools that an answer may call."""
        return callable_names(self.tool_choice, self.tools)

    @property
    def rendering(self) -> Rendering:
        shown = super().rendering
        return replace(shown, tools=()) if self.tool_choice == "none" else shown

    @model_validator(mode="after")
    def _choice_is_a_tool(self) -> ToolUse:
        check_choice(self.tool_choice, self.tools)
        return self
