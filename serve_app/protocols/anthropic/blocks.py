"""The messages of a conversation and the blocks in them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag, model_validator

from serve_app.http.schema.fields import Fields, field_error
from serve_app.http.schema.values import CONVERSATION, FAIL_FAST, MAX_MESSAGES, MAX_PARTS, PARTS, TEXT, at_most, takes
from serve_app.protocols.translation import by_type, known_types

_CACHING = frozenset({"cache_control"})
_BLOCKS = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "system": ("text",),
}


class TextBlockParam(Fields):
    ignored = _CACHING | {"citations"}

    type: Literal["text"] = Field(description="Images and documents are not supported.")
    text: str


TextBlockParams = Annotated[
    list[Annotated[TextBlockParam, known_types("blocks", "text")]], FAIL_FAST, at_most(MAX_PARTS)
]
Text = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[TextBlockParams, Tag(PARTS)],
    takes("a string or a list of text blocks", empty=PARTS),
]


class ThinkingBlockParam(Fields):
    """What the model thought before it answered or called."""

    ignored = frozenset({"signature"})

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlockParam(Fields):
    """Another service's thinking, which says nothing here."""

    ignored = frozenset({"data"})

    type: Literal["redacted_thinking"]


class ToolUseBlockParam(Fields):
    """A call that the model made."""

    ignored = _CACHING | {"caller", "toolset_name"}

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlockParam(Fields):
    """What a tool returned."""

    ignored = _CACHING | {"is_error", "toolset_name"}

    type: Literal["tool_result"]
    tool_use_id: str
    content: Text = ""


BlockParam = Annotated[
    Annotated[TextBlockParam, Tag("<text>")]
    | Annotated[ThinkingBlockParam, Tag("<thinking>")]
    | Annotated[RedactedThinkingBlockParam, Tag("<redacted_thinking>")]
    | Annotated[ToolUseBlockParam, Tag("<tool_use>")]
    | Annotated[ToolResultBlockParam, Tag("<tool_result>")],
    by_type(),
    known_types("blocks", "text", "thinking", "redacted_thinking", "tool_use", "tool_result"),
]
BlockParams = Annotated[list[BlockParam], FAIL_FAST, at_most(MAX_PARTS)]


class MessageParam(Fields):
    role: Literal["user", "assistant", "system"]
    content: Annotated[
        Annotated[str, Tag(TEXT)] | Annotated[BlockParams, Tag(PARTS)],
        takes("a string or a list of blocks", empty=PARTS),
    ] = Field(description="An assistant's has text, thinking and tool_use, a user's text and tool_result.")

    @model_validator(mode="after")
    def _of_the_role(self) -> MessageParam:
        if self.content == [] and self.role != "assistant":
            raise field_error("content", "content must be a string or a list of blocks that is not empty")
        for number, block in enumerate(self.blocks):
            if block.type not in _BLOCKS[self.role]:
                kinds = ", ".join(_BLOCKS[self.role])
                message = f"a message of the role '{self.role}' has blocks of type {kinds}, not {block.type}"
                raise field_error(f"content[{number}].type", message)
        return self

    @property
    def blocks(self) -> list[BlockParam]:
        """The content; an answer that said nothing is an empty text."""
        if isinstance(self.content, str):
            return [TextBlockParam(type="text", text=self.content)]
        return self.content or [TextBlockParam(type="text", text="")]


MessageParams = Annotated[list[MessageParam], FAIL_FAST, Field(min_length=1), CONVERSATION, at_most(MAX_MESSAGES)]


def text_of(content: str | list[TextBlockParam]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)
