"""Conversations in a request body, and the fields that say how the chat template renders them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag, model_validator

from core.text.chat_template import Rendering
from serve_app.openai import unsupported as unsupported_fields
from serve_app.openai.fields import Fields, field_error
from serve_app.openai.values import FAIL_FAST, MAX_MESSAGES, MAX_PARTS, PARTS, TEXT, at_most, takes


class TextPart(Fields):
    unsupported = unsupported_fields.TEXT_PART

    type: Literal["text"] = Field(description="Images, audio and files are not supported.")
    text: str


Content = Annotated[
    Annotated[str, Tag(TEXT)]
    | Annotated[list[TextPart], FAIL_FAST, Field(min_length=1), at_most(MAX_PARTS), Tag(PARTS)],
    takes("a string or a list of text parts"),
]


def text_of(content: str | list[TextPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


class Message(Fields):
    ignored = frozenset({"name", "refusal", "annotations"})
    unsupported = unsupported_fields.MESSAGE

    role: Literal["system", "developer", "user", "assistant"] = Field(description="`developer` means `system`.")
    content: Content

    @property
    def text(self) -> str:
        return text_of(self.content)


Messages = Annotated[list[Message], FAIL_FAST, Field(min_length=1), at_most(MAX_MESSAGES)]


def for_template(messages: list[Message]) -> list[dict[str, str]]:
    """The messages as chat templates take them."""
    return [
        {"role": "system" if message.role == "developer" else message.role, "content": message.text}
        for message in messages
    ]


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

    @property
    def rendering(self) -> Rendering:
        opened = self.add_generation_prompt
        return Rendering(
            add_generation_prompt=not self.continue_final_message if opened is None else opened,
            continue_final_message=self.continue_final_message,
            special_tokens_in_content=self.special_tokens_in_content,
            variables=self.chat_template_kwargs,
        )

    @model_validator(mode="after")
    def _open_or_continue(self) -> TemplateFields:
        if self.continue_final_message and self.add_generation_prompt:
            message = "continue_final_message goes on with the last message; leave out add_generation_prompt"
            raise field_error("continue_final_message", message)
        return self
