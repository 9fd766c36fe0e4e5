"""The items of a conversation in `input`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator

from serve_app.http.schema.fields import Fields, field_error
from serve_app.http.schema.messages import RefusalPart
from serve_app.http.schema.values import CONVERSATION, FAIL_FAST, MAX_MESSAGES, MAX_PARTS, PARTS, TEXT, at_most, takes
from serve_app.protocols.translation import by_type, known_types

_SENT_BACK = frozenset({"id", "status"})  # what an item of an answer has beside its contents


class InputTextPart(Fields):
    ignored = frozenset({"annotations", "logprobs", "prompt_cache_breakpoint"})

    type: Literal["input_text", "output_text"] = Field(description="Images, audio and files are not supported.")
    text: str


Part = Annotated[
    Annotated[InputTextPart, Tag("<input_text>")]
    | Annotated[InputTextPart, Tag("<output_text>")]
    | Annotated[RefusalPart, Tag("<refusal>")],
    by_type(),
    known_types("parts", "input_text", "output_text", "refusal"),
]
Parts = Annotated[list[Part], FAIL_FAST, at_most(MAX_PARTS)]
Text = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[Parts, Tag(PARTS)],
    takes("a string or a list of text parts", empty=PARTS),
]


class MessageItemParam(Fields):
    ignored = _SENT_BACK | {"phase"}

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"] = Field(description="`developer` means `system`.")
    content: Text

    @model_validator(mode="after")
    def _says_something(self) -> MessageItemParam:
        if self.content == [] and self.role != "assistant":
            raise field_error("content", "content must be a string or a list of text parts that is not empty")
        return self


class FunctionCallItemParam(Fields):
    """A call that the model made."""

    ignored = _SENT_BACK | {"caller", "namespace", "async"}

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str = Field(description="JSON.")


class FunctionCallOutputParam(Fields):
    """What a function returned."""

    ignored = _SENT_BACK | {"caller", "namespace", "name"}

    type: Literal["function_call_output"]
    call_id: str
    output: Text


class ReasoningTextParam(Fields):
    type: Literal["reasoning_text"]
    text: str


class ReasoningItemParam(Fields):
    """What the model thought before it answered or called."""

    ignored = _SENT_BACK | {"summary", "encrypted_content"}

    type: Literal["reasoning"]
    content: Annotated[list[ReasoningTextParam], FAIL_FAST, at_most(MAX_PARTS)] = Field([])

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content)


ItemParam = Annotated[
    Annotated[MessageItemParam, Tag("<message>")]
    | Annotated[FunctionCallItemParam, Tag("<function_call>")]
    | Annotated[FunctionCallOutputParam, Tag("<function_call_output>")]
    | Annotated[ReasoningItemParam, Tag("<reasoning>")],
    by_type("message"),
    known_types("items", "message", "function_call", "function_call_output", "reasoning", default="message"),
]
ItemParams = Annotated[list[ItemParam], FAIL_FAST, Field(min_length=1), CONVERSATION, at_most(MAX_MESSAGES)]
Input = Annotated[Annotated[str, Tag(TEXT)] | Annotated[ItemParams, Tag(PARTS)], takes("a string or a list of items")]


def text_of(content: str | list[InputTextPart | RefusalPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
