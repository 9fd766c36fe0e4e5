"""A prompt: a bare text, or a conversation with the tools that it may use, up to the turn that the target answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A call of a tool in an earlier answer. `arguments` is text, mostly JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """A turn of a conversation. The role is one of OpenAI's API."""

    role: str
    content: str
    tool_calls: tuple[Call, ...] = ()
    tool_call_id: str | None = None  # of the call that a message of the role `tool` answers


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Either `prompt`, a bare text, or `messages`.

    `tools` are OpenAI's objects as JSON. `task` is a label for reports; training ignores it. `origin` says where the
    prompt comes from, such as a file and a line.
    """

    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    tools: tuple[str, ...] = ()
    task: str | None = None
    origin: str = field(default="", compare=False)

    @property
    def chat_fields(self) -> dict[str, Any]:
        """The fields of a chat request that ask it; a bare text is a user's message."""
        messages = self.messages or (Message("user", self.prompt or ""),)
        fields = {"messages": [_written(message, str) for message in messages]}
        return fields | ({"tools": self.tool_objects} if self.tools else {})

    @property
    def template_messages(self) -> list[dict[str, Any]]:
        """The conversation as chat templates take it."""
        messages = self.messages or ()
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        shown = [_written(message, _object) for message in messages]
        for message in shown:
            if name := names.get(message.get("tool_call_id", "")):
                message["name"] = name
        return shown

    @property
    def tool_objects(self) -> list[dict[str, Any]]:
        return [json.loads(tool) for tool in self.tools]


def _written(message: Message, arguments: Callable[[str], Any]) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        written["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments(call.arguments)}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    return written


def _object(arguments: str) -> Any:
    """Templates want an object; what is none stays text."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
