"""Tools for models whose chat template has none: told in the system message, calls and results in the other roles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.parsing.formats import ToolFormat

Message = Mapping[str, Any]

_LOST = ("tool_calls", "tool_call_id", "name")  # parts of a message that are written out, or not needed then
_INTRODUCTION = """\
You can call tools. Each is described here by one line of JSON:
<tools>
{tools}
</tools>
To call a tool, answer with its name and its arguments, as its parameters describe them, in this form:
{form}
The results come in <tool_response></tool_response>."""


def with_written_tools(messages: Sequence[Message], tools: Sequence[Any], form: ToolFormat) -> list[dict[str, Any]]:
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
            content = "\n".join(filter(None, [content, _calls([call["function"] for call in calls], form)]))
        kept = {key: value for key, value in message.items() if key not in _LOST}
        written.append({**kept, "content": content})
    for message in written:
        message["role"] = "user" if message["role"] == "tool" else message["role"]
    return _told(written, tools, form) if tools else written


def _told(messages: list[dict[str, Any]], tools: Sequence[Any], form: ToolFormat) -> list[dict[str, Any]]:
    example = _calls([{"name": "NAME", "arguments": {"PARAMETER": "VALUE"}}], form)
    lines = "\n".join(_json(tool["function"]) for tool in tools)
    introduction = _INTRODUCTION.format(tools=lines, form=example)
    if messages and messages[0]["role"] == "system":
        first = {"role": "system", "content": f"{messages[0]['content']}\n\n{introduction}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": introduction}, *messages]


def _calls(functions: Sequence[Mapping[str, Any]], form: ToolFormat) -> str:
    key = "parameters" if form == "llama3" else "arguments"
    objects = [f'{{"name": {_json(f["name"])}, "{key}": {_arguments(f["arguments"])}}}' for f in functions]
    match form:
        case "hermes":
            return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in objects)
        case "llama3":
            return "; ".join(objects)
        case "mistral":
            return f"[TOOL_CALLS] [{', '.join(objects)}]"
        case "json":
            return objects[0] if len(objects) == 1 else f"[{', '.join(objects)}]"


def _arguments(arguments: Any) -> str:
    """What is no JSON stays the text that it was."""
    return arguments if isinstance(arguments, str) else _json(arguments)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
