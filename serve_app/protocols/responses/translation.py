"""The chat request that a body of /v1/responses stands for."""

from __future__ import annotations

from typing import Any

from core.errors import InvalidRequest
from serve_app.http.schema.requests import ChatRequest
from serve_app.protocols.responses.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    Item,
    MessageItem,
    ReasoningItem,
    text_of,
)
from serve_app.protocols.responses.requests import AllowedTools, FunctionTool, NamedFunction, ResponsesRequest
from serve_app.protocols.translation import Names, chat_request

_SAME = ("model", "temperature", "top_p", "top_k", "seed", "store", "parallel_tool_calls")
_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "tool_choice.function": "tool_choice",
}

Message = dict[str, Any]


def translated(body: ResponsesRequest) -> tuple[ChatRequest, Names]:
    """The request, and the client's names of its fields; raises `InvalidRequest` in these names."""
    conversation = Conversation(body)
    if not conversation.messages:
        raise InvalidRequest("input", "the items of 'input' say nothing; add a message")
    names = Names(_NAMES | conversation.names | _names_of_tools(body))
    with names.clients():
        return chat_request(_fields(body) | {"messages": conversation.messages}), names


def _names_of_tools(body: ResponsesRequest) -> dict[str, str]:
    names = {f"tools[{n}].function": f"tools[{n}]" for n in range(len(body.tools))}
    if isinstance(body.tool_choice, AllowedTools):
        path = "tool_choice.allowed_tools.tools"
        names |= {f"{path}[{n}].function": f"tool_choice.tools[{n}]" for n in range(len(body.tool_choice.tools))}
    return names


def _fields(body: ResponsesRequest) -> dict[str, Any]:
    tools = [_tool(tool) for tool in body.tools]
    fields = {name: getattr(body, name) for name in _SAME} | {
        "max_tokens": body.max_output_tokens,
        "reasoning_effort": body.reasoning.effort,
        "response_format": _response_format(body.text.format),
        "speculation": body.speculation,
        "tools": tools or None,
        "tool_choice": _tool_choice(body),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _tool(tool: FunctionTool) -> dict[str, Any]:
    return {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}


def _tool_choice(body: ResponsesRequest) -> str | dict[str, Any] | None:
    match body.tool_choice:
        case AllowedTools() as allowed:
            tools = [_named(tool) for tool in allowed.tools]
            return {"type": "allowed_tools", "allowed_tools": {"mode": allowed.mode, "tools": tools}}
        case NamedFunction() as function:
            return _named(function)
        case choice:
            return choice


def _named(function: NamedFunction) -> dict[str, Any]:
    return {"type": "function", "function": {"name": function.name}}


def _response_format(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is None or given.get("type") != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": {name: value for name, value in given.items() if name != "type"}}


class Conversation:
    """The chat messages of the items of a body, and the client's names of what is in them.

    An assistant's turn is one message in a chat and several items here: reasoning, then text, then calls.
    """

    def __init__(self, body: ResponsesRequest) -> None:
        self.messages: list[Message] = []
        self.names: dict[str, str] = {}
        self._turn: set[str] = set()  # what the last message has, if it is an assistant's
        if body.instructions is not None:
            self._add("system", body.instructions, "instructions", "instructions")
        if isinstance(body.input, str):
            self._add("user", body.input, "input", "input")
        else:
            for number, item in enumerate(body.input):
                self._take(f"input[{number}]", item)

    def _take(self, name: str, item: Item) -> None:
        match item:
            case MessageItem(role="assistant"):
                self._assistant("content", name, before=("content", "tool_calls"))["content"] = text_of(item.content)
            case MessageItem():
                self._add(item.role, text_of(item.content), name, f"{name}.content")
            case ReasoningItem() if item.text:
                before = ("reasoning_content", "content", "tool_calls")
                self._assistant("reasoning_content", name, before)["reasoning_content"] = item.text
            case FunctionCallItem():
                self._call(name, item)
            case FunctionCallOutputItem():
                self._add("tool", text_of(item.output), name, f"{name}.output")["tool_call_id"] = item.call_id
                self.names[f"{self._path}.tool_call_id"] = f"{name}.call_id"

    @property
    def _path(self) -> str:
        return f"messages[{len(self.messages) - 1}]"

    def _add(self, role: str, content: str, name: str, name_of_content: str) -> Message:
        self.messages.append({"role": role, "content": content})
        self.names |= {self._path: name, f"{self._path}.content": name_of_content}
        self._turn = set()
        return self.messages[-1]

    def _assistant(self, part: str, name: str, before: tuple[str, ...]) -> Message:
        """The assistant's message that gets `part`: the last, unless it already has one of `before`."""
        if not self._turn or not self._turn.isdisjoint(before):
            self._add("assistant", "", name, f"{name}.content")
        self._turn.add(part)
        self.names[f"{self._path}.{part}"] = name if part == "tool_calls" else f"{name}.content"
        return self.messages[-1]

    def _call(self, name: str, item: FunctionCallItem) -> None:
        calls = self._assistant("tool_calls", name, before=()).setdefault("tool_calls", [])
        path = f"{self._path}.tool_calls[{len(calls)}]"
        self.names |= {path: name, f"{path}.function": name, f"{path}.id": f"{name}.call_id"}
        function = {"name": item.name, "arguments": item.arguments}
        calls.append({"id": item.call_id, "type": "function", "function": function})
