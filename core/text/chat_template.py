"""The target's chat template: a conversation becomes the token ids of a prompt."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from core.errors import InvalidRequest
from core.text.plain_contents import PlainContents, reserved_ids
from core.text.written_tools import with_written_tools
from core.tools.formats import FORMATS, format_of, takes_tools
from core.tools.reasoning import reasoning_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "zqxzq"  # appears in no chat template
_PROBES = (("system", "user", "assistant", "user"), ("user", "assistant", "user"), ("user",))
_QUOTED = 200  # characters of a template's complaint

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Rendering:
    """How a conversation becomes a prompt.

    `add_generation_prompt` opens an answer, `continue_final_message` leaves the last message open instead.
    `special_tokens_in_content` makes tokens of the special tokens that messages have in their text. `tools` are objects
    as in OpenAI's API. `variables` are further ones of the template, by name, such as `enable_thinking`.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    special_tokens_in_content: bool = False
    tools: Sequence[dict[str, Any]] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)


class ChatTemplate:
    """Renders and encodes conversations with the template of `hf`, which may lack one.

    `tool_format` is how calls of tools are written: as the template asks for, unless one is named. It has to be named
    for a template without tools, which then stand in the system message. `reasoning` are the template's markers.
    """

    def __init__(self, hf: PreTrainedTokenizerBase, format_name: str | None = None) -> None:
        self._hf = hf
        self._raw = hf.backend_tokenizer
        code = _code(hf.chat_template)
        self._takes_tools = takes_tools(code)
        self.tool_format = format_of(code) if format_name is None else FORMATS[format_name]
        self.reasoning = reasoning_of(code)
        self.variables = frozenset(re.findall(r"\w+", code))  # those and other words

    @property
    def exists(self) -> bool:
        return self._hf.chat_template is not None

    def encode(self, messages: Messages, rendering: Rendering) -> list[int]:
        """Token ids; raises `InvalidRequest` if there is no template, or if it refuses the conversation."""
        if not self.exists:
            raise InvalidRequest("messages", "this model has no chat template; use /v1/completions")
        _check_names(self._hf, rendering.variables)
        self._check_tools(messages, rendering)
        typed: list[str] = []
        if not rendering.special_tokens_in_content:
            messages = self._plain.hidden(messages, typed)
            tools = self._plain.hidden(list(rendering.tools), typed)
            rendering = replace(rendering, tools=tools, variables=self._plain.hidden(rendering.variables, typed))
        if self.tool_format is not None and not self._takes_tools:
            messages = with_written_tools(messages, rendering.tools, self.tool_format)
            rendering = replace(rendering, tools=())
        elif self.tool_format is not None:
            messages = [dict(self.tool_format.template_message(message)) for message in messages]
        try:
            text = self._rendered(messages, rendering)
        except Exception as error:  # a template is a program, and what it fails on is in the request
            complaint = self._plain.shown(str(error), typed)[:_QUOTED] or type(error).__name__
            message = f"the model's chat template refuses these messages: {complaint}"
            raise InvalidRequest("messages", message) from error
        if typed:
            return self._plain.encode(text, typed)
        # The template has written the special tokens. The batch call releases the interpreter lock.
        return list(self._raw.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    def _rendered(self, messages: Messages, rendering: Rendering) -> str:
        return str(
            self._hf.apply_chat_template(
                messages,
                tools=list(rendering.tools) or None,
                tokenize=False,
                add_generation_prompt=rendering.add_generation_prompt,
                continue_final_message=rendering.continue_final_message,
                **rendering.variables,
            )
        )

    def _check_tools(self, messages: Messages, rendering: Rendering) -> None:
        """Refuse what would be lost in silence."""
        if self.tool_format is not None:
            return
        reason = "asks for calls in a form that is not read" if self._takes_tools else "has no tools"
        if rendering.tools:
            complaint = (
                f"this model's chat template {reason}; leave tools out, or set target.tool_format of the service"
            )
            raise InvalidRequest("tools", complaint)
        if self._takes_tools:
            return
        for number, message in enumerate(messages):
            if message["role"] == "tool" or message.get("tool_calls"):
                field = f"messages[{number}]." + ("role" if message["role"] == "tool" else "tool_calls")
                reason = "this model's chat template has no tools; leave the message out"
                raise InvalidRequest(field, f"'{field}': {reason}")

    @cached_property
    def _plain(self) -> PlainContents:
        return PlainContents(self._raw, reserved_ids(self._raw, self._frame))

    def _frame(self) -> str:
        """What the template writes around closed messages of the roles that it takes."""
        for roles in _PROBES:
            with suppress(Exception):  # many templates refuse a system message
                messages = [{"role": role, "content": PROBE} for role in roles]
                return self._rendered(messages, Rendering(add_generation_prompt=False))
        return ""


def _code(template: str | dict[str, str] | None) -> str:
    """The text of a template, or of all those that a tokenizer has by name."""
    return "\n".join(template.values()) if isinstance(template, dict) else template or ""


def _check_names(hf: PreTrainedTokenizerBase, variables: Mapping[str, Any]) -> None:
    """Refuse variables that are no business of a template's: those that say how to render or with which template."""
    own = {"messages", "conversations", *inspect.signature(hf.apply_chat_template).parameters}
    if names := sorted(own.intersection(variables)):
        message = f"'{names[0]}' is no variable of a chat template; give the template's own, such as enable_thinking"
        raise InvalidRequest("chat_template_kwargs", message)
