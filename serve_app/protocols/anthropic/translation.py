"""The chat request that a body of /v1/messages stands for."""

from __future__ import annotations

import json
from typing import Any

from serve_app.http.schema.requests import ChatRequest
from serve_app.protocols.anthropic.blocks import (
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    text_of,
)
from serve_app.protocols.anthropic.requests import MessagesRequest, PromptFields, Tool, ToolChoice
from serve_app.protocols.translation import Names, chat_request

_SAME = ("max_tokens", "temperature", "top_p", "top_k", "seed", "store", "speculation")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_NAMES = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "response_format.json_schema": "output_config.format",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "tool_choice.function": "tool_choice",
    "chat_template_kwargs": "thinking",
}

ChatMessage = dict[str, Any]


def translated(body: PromptFields) -> tuple[ChatRequest, Names]:
    """The request, and the client's names of its fields; raises `InvalidRequest` in these names."""
    conversation = Conversation(body)
    names = Names(_NAMES | conversation.names | _names_of_tools(len(body.tools)))
    with names.clients():
        return chat_request(_fields(body) | {"messages": conversation.messages}), names


def _names_of_tools(number: int) -> dict[str, str]:
    functions = {f"tools[{n}].function": f"tools[{n}]" for n in range(number)}
    return functions | {f"tools[{n}].function.parameters": f"tools[{n}].input_schema" for n in range(number)}


def _fields(body: PromptFields) -> dict[str, Any]:
    choice = body.tool_choice
    fields = {
        "model": body.model,
        "tools": [_tool(tool) for tool in body.tools] or None,
        "tool_choice": None if choice is None else _tool_choice(choice),
        "parallel_tool_calls": False if choice is not None and choice.disable_parallel_tool_use else None,
        "chat_template_kwargs": _template_variables(body) or None,
        "response_format": _response_format(body.output_config.format),
        "continue_final_message": _is_begun(body.messages[-1]) or None,
    }
    if isinstance(body, MessagesRequest):
        fields |= {name: getattr(body, name) for name in _SAME} | {"stop": body.stop_sequences}
    return {name: value for name, value in fields.items() if value is not None}


def _template_variables(body: PromptFields) -> dict[str, Any]:
    """How much to think, in the words of the templates that know any; the others are told in vain.

    So an effort is never refused, as it is in a chat request: agents send one whatever the model.
    """
    effort, thinking = body.output_config.effort, body.thinking
    told = {} if effort is None else {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return told if thinking is None else told | {"enable_thinking": thinking.type != "disabled"}


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    given = {name: value for name, value in (function | {"strict": tool.strict}).items() if value is not None}
    return {"type": "function", "function": given}


def _tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return _CHOICES[choice.type]


def _response_format(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is None or given.get("type") != "json_schema":
        return given
    rest = {name: value for name, value in given.items() if name != "type"}
    return {"type": "json_schema", "json_schema": {"name": "answer", **rest}}


def _is_begun(message: Message) -> bool:
    """Whether the message is the beginning of the answer."""
    return message.role == "assistant" and isinstance(message.blocks[-1], TextBlock)


class Conversation:
    """The chat messages of a body, and the client's names of what is in them.

    The results of tools, which a user's message has here, are messages of their own in a chat.
    """

    def __init__(self, body: PromptFields) -> None:
        self.messages: list[ChatMessage] = []
        self.names: dict[str, str] = {}
        if system := text_of(body.system or ""):
            self._add("system", system, "system", "system")
        for number, message in enumerate(body.messages):
            self._take(f"messages[{number}]", message)

    def _take(self, name: str, message: Message) -> None:
        if message.role == "assistant":
            self._assistant(name, message)
        else:
            self._other(name, message)

    def _assistant(self, name: str, message: Message) -> None:
        turn = self._add("assistant", "", name, f"{name}.content")
        for number, block in enumerate(message.blocks):
            match block:
                case TextBlock(text=text):
                    turn["content"] += text
                case ThinkingBlock(thinking=thinking):
                    turn["reasoning_content"] = turn.get("reasoning_content", "") + thinking
                    self.names[f"{self._path}.reasoning_content"] = f"{name}.content[{number}].thinking"
                case ToolUseBlock():
                    self._call(f"{name}.content[{number}]", block, turn.setdefault("tool_calls", []))

    def _call(self, name: str, block: ToolUseBlock, calls: list[dict[str, Any]]) -> None:
        path = f"{self._path}.tool_calls[{len(calls)}]"
        self.names |= {path: name, f"{path}.function": name, f"{path}.function.arguments": f"{name}.input"}
        function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
        calls.append({"id": block.id, "type": "function", "function": function})

    def _other(self, name: str, message: Message) -> None:
        texts: list[ChatMessage] = []  # the chat message of the text blocks that follow each other
        for number, block in enumerate(message.blocks):
            at = f"{name}.content[{number}]"
            match block:
                case ToolResultBlock():
                    self._add("tool", text_of(block.content), at, f"{at}.content")["tool_call_id"] = block.tool_use_id
                    self.names[f"{self._path}.tool_call_id"] = f"{at}.tool_use_id"
                    texts = []
                case TextBlock() if texts:
                    texts[0]["content"] += block.text
                case TextBlock():
                    texts = [self._add(message.role, block.text, name, f"{name}.content")]

    @property
    def _path(self) -> str:
        return f"messages[{len(self.messages) - 1}]"

    def _add(self, role: str, content: str, name: str, name_of_content: str) -> ChatMessage:
        self.messages.append({"role": role, "content": content})
        self.names |= {self._path: name, f"{self._path}.content": name_of_content}
        return self.messages[-1]
