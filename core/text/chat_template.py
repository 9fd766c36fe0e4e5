"""The target's chat template: a conversation becomes the token ids of a prompt."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from core.errors import InvalidRequest
from core.text.plain_contents import PlainContents, reserved_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "zqxzq"  # appears in no chat template
_PROBES = (("system", "user", "assistant", "user"), ("user", "assistant", "user"), ("user",))
_QUOTED = 200  # characters of a template's complaint

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Rendering:
    """How a conversation becomes a prompt.

    `add_generation_prompt` opens an answer, `continue_final_message` leaves the last message open instead.
    `special_tokens_in_content` makes tokens of the special tokens that messages have in their text. `variables` are
    further ones of the template, by name, such as `enable_thinking`.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    special_tokens_in_content: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)


class ChatTemplate:
    """Renders and encodes conversations with the template of `hf`, which may lack one."""

    def __init__(self, hf: PreTrainedTokenizerBase) -> None:
        self._hf = hf
        self._raw = hf.backend_tokenizer

    @property
    def exists(self) -> bool:
        return self._hf.chat_template is not None

    def encode(self, messages: Messages, rendering: Rendering) -> list[int]:
        """Token ids; raises `InvalidRequest` if there is no template, or if it refuses the conversation."""
        if not self.exists:
            raise InvalidRequest("messages", "this model has no chat template; use /v1/completions")
        _check_names(self._hf, rendering.variables)
        typed: list[str] = []
        if not rendering.special_tokens_in_content:
            messages = self._plain.hidden(messages, typed)
            rendering = replace(rendering, variables=self._plain.hidden(rendering.variables, typed))
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
                tokenize=False,
                add_generation_prompt=rendering.add_generation_prompt,
                continue_final_message=rendering.continue_final_message,
                **rendering.variables,
            )
        )

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


def _check_names(hf: PreTrainedTokenizerBase, variables: Mapping[str, Any]) -> None:
    """Refuse variables that are no business of a template's: those that say how to render or with which template."""
    own = {"messages", "conversations", *inspect.signature(hf.apply_chat_template).parameters}
    if taken := sorted(own.intersection(variables)):
        message = f"'{taken[0]}' is no variable of a chat template; give the template's own, such as enable_thinking"
        raise InvalidRequest("chat_template_kwargs", message)
