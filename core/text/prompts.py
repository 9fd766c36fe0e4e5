"""Prompts from a JSONL file, for a cold start; all lines are checked before the target answers any of them.

A line is `{"prompt": "..."}` or `{"messages": [{"role": "...", "content": "..."}]}`, with a `task` if it is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from core.errors import ConfigError

_Text = Annotated[str, Meta(min_length=1)]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A turn of a conversation."""

    role: _Text
    content: str


class Prompt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either a bare text or a conversation. `task` is a label for reports; training ignores it."""

    prompt: _Text | None = None
    messages: Annotated[tuple[Message, ...], Meta(min_length=1)] | None = None
    task: _Text | None = None

    def __post_init__(self) -> None:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either `prompt` or `messages`")


def read_prompts(file: Path) -> list[Prompt]:
    """All prompts of a JSONL file; blank lines are skipped. `ConfigError` names the first bad line and field."""
    try:
        with file.open("rb") as lines:
            return [_decoded(line, file, number) for number, line in enumerate(lines, 1) if line.strip()]
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


def _decoded(line: bytes, file: Path, number: int) -> Prompt:
    try:
        return msgspec.json.decode(line, type=Prompt)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}, line {number}: {error}") from error
