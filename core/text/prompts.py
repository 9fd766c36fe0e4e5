"""Prompts from a JSONL file, for a cold start; all lines are checked before the target answers any of them.

A line is `{"prompt": "..."}` or `{"messages": [{"role": "...", "content": "..."}]}`, with a `task` if it is known.
"""

from __future__ import annotations

from codecs import BOM_UTF8
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
    """All prompts of a JSONL file, at least one; blank lines are skipped, and so is a byte order mark.

    `ConfigError` names the first bad line and field, or a file without prompts.
    """
    try:
        lines = file.read_bytes().removeprefix(BOM_UTF8).split(b"\n")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    found = [_decoded(line, file, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise ConfigError(f'{file} has no prompts: write lines of {{"prompt": "..."}} or {{"messages": [...]}} in it')
    return found


def _decoded(line: bytes, file: Path, number: int) -> Prompt:
    try:
        return msgspec.json.decode(line, type=Prompt)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}, line {number}: {error}") from error
