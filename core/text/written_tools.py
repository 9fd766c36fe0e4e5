"""Tools for models whose chat template has none: they stand in the system message, calls and results in other roles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.tools.format import ToolFormat

Message = Mapping[str, Any]

_WRITTEN_OUT = ("tool_calls", "tool_call_id", "name")  # parts of a message that are written out, or not needed then
_INTRODUCTION = """\
You can call tools. Each is described here by one line of JSON:
<tools>
{tools}
</tools>
To call a tool, answer with its name and its arguments, as its parameters describe them, in this form:
{form}
The results come in <tool_response></tool_response>."""


def with_written_tools(
    messages: Sequence[Message], tools: Sequence[Any], tool_format: ToolFormat
) -> list[dict[str, Any]]:
    """The same conversation for a template that knows neither calls, nor their results, nor tools."""
    written: list[dict[str, Any]] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            content = f"<tool_response>\n{content}\n</tool_response>"
            if written and written[-1]["role"] == "tool":
                written[-1]["content"] += "\n" + content
                continue
        elif calls := message.get("tool_calls"):
            content = "\n".join(filter(None, [content, _shown([call["function"] for call in calls], tool_format)]))
        others = {key: value for key, value in message.items() if key not in _WRITTEN_OUT}
        written.append({**others, "content": content})
    for message in written:
        message["role"] = "user" if message["role"] == "tool" else message["role"]
    return _introduced(written, tools, tool_format) if tools else written


def _introduced(messages: list[dict[str, Any]], tools: Sequence[Any], tool_format: ToolFormat) -> list[dict[str, Any]]:
    example = _shown([{"name": "NAME", "arguments": {"PARAMETER": "VALUE"}}], tool_format)
    lines = "\n".join(_json(tool["function"]) for tool in tools)
    introduction = _INTRODUCTION.format(tools=lines, form=example)
    if messages and messages[0]["role"] == "system":
        first = {"role": "system", "content": f"{messages[0]['content']}\n\n{introduction}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": introduction}, *messages]


def _shown(functions: Sequence[Mapping[str, Any]], tool_format: ToolFormat) -> str:
    return tool_format.shown([tool_format.call(call["name"], _arguments(call["arguments"])) for call in functions])


def _arguments(arguments: Any) -> str:
    """What is no JSON stays the text that it was."""
    return arguments if isinstance(arguments, str) else _json(arguments)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
