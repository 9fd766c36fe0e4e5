"""The chat request that a body of /v1/responses stands for."""

from __future__ import annotations

from typing import Any

from core.errors import InvalidRequest
from serve_app.http.schema.requests import ChatRequest
from serve_app.protocols.responses.items import (
    FunctionCallItemParam,
    FunctionCallOutputParam,
    ItemParam,
    MessageItemParam,
    ReasoningItemParam,
    text_of,
)
from serve_app.protocols.responses.requests import AllowedToolsChoice, FunctionChoice, FunctionTool, ResponsesRequest
from serve_app.protocols.translation import ChatConversation, Message, Names, chat_request, present, response_format

_SAME = ("model", "temperature", "top_p", "top_k", "seed", "store", "parallel_tool_calls")
_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "tool_choice.function": "tool_choice",
}


def translated(body: ResponsesRequest) -> tuple[ChatRequest, Names]:
    """The request, and the client's names of its fields; raises `InvalidRequest` in these names."""
    conversation = ItemConversation(body)
    if not conversation.messages:
        raise InvalidRequest("input", "the items of 'input' say nothing; add a message")
    names = Names(_NAMES | conversation.names | _names_of_tools(body))
    with names.clients():
        return chat_request(_fields(body) | {"messages": conversation.messages}), names


def _names_of_tools(body: ResponsesRequest) -> dict[str, str]:
    names = {f"tools[{n}].function": f"tools[{n}]" for n in range(len(body.tools))}
    if isinstance(body.tool_choice, AllowedToolsChoice):
        path = "tool_choice.allowed_tools.tools"
        names |= {f"{path}[{n}].function": f"tool_choice.tools[{n}]" for n in range(len(body.tool_choice.tools))}
    return names


def _fields(body: ResponsesRequest) -> dict[str, Any]:
    tools = [_tool(tool) for tool in body.tools]
    fields = {name: getattr(body, name) for name in _SAME} | {
        "max_tokens": body.max_output_tokens,
        "reasoning_effort": body.reasoning.effort,
        "response_format": response_format(body.text.format),
        "speculation": body.speculation,
        "tools": tools or None,
        "tool_choice": _tool_choice(body),
    }
    return present(fields)


def _tool(tool: FunctionTool) -> dict[str, Any]:
    return {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}


def _tool_choice(body: ResponsesRequest) -> str | dict[str, Any] | None:
    match body.tool_choice:
        case AllowedToolsChoice() as allowed:
            tools = [_named(tool) for tool in allowed.tools]
            return {"type": "allowed_tools", "allowed_tools": {"mode": allowed.mode, "tools": tools}}
        case FunctionChoice() as function:
            return _named(function)
        case choice:
            return choice


def _named(function: FunctionChoice) -> dict[str, Any]:
    return {"type": "function", "function": {"name": function.name}}


class ItemConversation(ChatConversation):
    """An assistant's turn is one message in a chat and several items here: reasoning, then text, then calls."""

    def __init__(self, body: ResponsesRequest) -> None:
        super().__init__()
        self._turn: set[str] = set()  # what the last message has, if it is an assistant's
        if body.instructions is not None:
            self.add("system", body.instructions, "instructions", "instructions")
        if isinstance(body.input, str):
            self.add("user", body.input, "input", "input")
        else:
            for number, item in enumerate(body.input):
                self._add_item(f"input[{number}]", item)

    def add(self, role: str, content: str, name: str, name_of_content: str) -> Message:
        self._turn = set()
        return super().add(role, content, name, name_of_content)

    def _add_item(self, name: str, item: ItemParam) -> None:
        match item:
            case MessageItemParam(role="assistant"):
                self._assistants("content", name, before=("content", "tool_calls"))["content"] = text_of(item.content)
            case MessageItemParam():
                self.add(item.role, text_of(item.content), name, f"{name}.content")
            case ReasoningItemParam() if item.text:
                before = ("reasoning_content", "content", "tool_calls")
                self._assistants("reasoning_content", name, before)["reasoning_content"] = item.text
            case FunctionCallItemParam():
                self._assistants("tool_calls", name, before=())
                self.add_call(name, item.call_id, {"name": item.name, "arguments": item.arguments}, {"id": "call_id"})
            case FunctionCallOutputParam():
                self.add_result(text_of(item.output), name, f"{name}.output", item.call_id, "call_id")

    def _assistants(self, part: str, name: str, before: tuple[str, ...]) -> Message:
        """The assistant's message that gets `part`: the last, unless it already has one of `before`."""
        if not self._turn or not self._turn.isdisjoint(before):
            self.add("assistant", "", name, f"{name}.content")
        self._turn.add(part)
        self.names[f"{self.last_path}.{part}"] = name if part == "tool_calls" else f"{name}.content"
        return self.messages[-1]
