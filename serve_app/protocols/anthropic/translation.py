"""The chat request that a body of /v1/messages stands for."""

from __future__ import annotations

import json
from typing import Any

from serve_app.http.schema.requests import ChatRequest
from serve_app.protocols.anthropic.blocks import (
    MessageParam,
    TextBlockParam,
    ThinkingBlockParam,
    ToolResultBlockParam,
    ToolUseBlockParam,
    text_of,
)
from serve_app.protocols.anthropic.requests import MessagesRequest, PromptFields, ToolChoiceParam, ToolParam
from serve_app.protocols.translation import ChatConversation, Message, Names, chat_request, present, response_format

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


def translated(body: PromptFields) -> tuple[ChatRequest, Names]:
    """The request, and the client's names of its fields; raises `InvalidRequest` in these names."""
    conversation = BlockConversation(body)
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
        "response_format": response_format(body.output_config.format),
        "continue_final_message": _is_begun(body.messages[-1]) or None,
    }
    if isinstance(body, MessagesRequest):
        fields |= {name: getattr(body, name) for name in _SAME} | {"stop": body.stop_sequences}
    return present(fields)


def _template_variables(body: PromptFields) -> dict[str, Any]:
    """How much to think, in the words of the templates that know any; the others ignore it.

    So an effort is never refused, as it is in a chat request: agents send one whatever the model.
    """
    effort, thinking = body.output_config.effort, body.thinking
    variables = {} if effort is None else {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return variables if thinking is None else variables | {"enable_thinking": thinking.type != "disabled"}


def _tool(tool: ToolParam) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": present(function | {"strict": tool.strict})}


def _tool_choice(choice: ToolChoiceParam) -> str | dict[str, Any]:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return _CHOICES[choice.type]


def _is_begun(message: MessageParam) -> bool:
    """Whether the message is the beginning of the answer."""
    return message.role == "assistant" and isinstance(message.blocks[-1], TextBlockParam)


class BlockConversation(ChatConversation):
    """The results of tools, which a user's message has here, are messages of their own in a chat."""

    def __init__(self, body: PromptFields) -> None:
        super().__init__()
        if system := text_of(body.system or ""):
            self.add("system", system, "system", "system")
        for number, message in enumerate(body.messages):
            add = self._add_assistants if message.role == "assistant" else self._add_others
            add(f"messages[{number}]", message)

    def _add_assistants(self, name: str, message: MessageParam) -> None:
        turn = self.add("assistant", "", name, f"{name}.content")
        for number, block in enumerate(message.blocks):
            path = f"{name}.content[{number}]"
            match block:
                case TextBlockParam(text=text):
                    turn["content"] += text
                case ThinkingBlockParam(thinking=thinking):
                    turn["reasoning_content"] = turn.get("reasoning_content", "") + thinking
                    self.names[f"{self.last_path}.reasoning_content"] = f"{path}.thinking"
                case ToolUseBlockParam():
                    function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
                    self.add_call(path, block.id, function, {"function.arguments": "input"})

    def _add_others(self, name: str, message: MessageParam) -> None:
        texts: list[Message] = []  # the chat message of the text blocks that follow each other
        for number, block in enumerate(message.blocks):
            path = f"{name}.content[{number}]"
            match block:
                case ToolResultBlockParam():
                    self.add_result(text_of(block.content), path, f"{path}.content", block.tool_use_id, "tool_use_id")
                    texts = []
                case TextBlockParam() if texts:
                    texts[0]["content"] += block.text
                case TextBlockParam():
                    texts = [self.add(message.role, block.text, name, f"{name}.content")]
