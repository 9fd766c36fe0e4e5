"""A grammar for llguidance whose texts are calls of tools with valid arguments, in the form that the target uses.

Arguments are written with one space behind commas and colons, as `json.dumps` does, so that all between the values is
forced. A marker that is a token of the target's tokenizer is that token in the grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from core.parsing import marks
from core.parsing.formats import BARE, Reasoning, ToolFormat

_SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_BLANK = r"[ \t\r\n]*"


class Tool(NamedTuple):
    """`parameters` is the JSON schema of an object, which llguidance can hold.

    Unless `strict`, free calls need not follow it.
    """

    name: str
    parameters: Mapping[str, Any]
    strict: bool = False


def calls_grammar(
    tool_format: ToolFormat,
    tools: Sequence[Tool],
    *,
    required: bool,
    parallel: bool = True,
    tokens: Mapping[str, int] | None = None,
    reasoning: Reasoning | None = None,
    opened: bool = False,
    content: str = "",
) -> str:
    """Calls of `tools` and nothing else if they are `required`, or else any text with calls in it or none.

    Without `parallel` there is at most one call. `tokens` are the ids of the markers that are tokens. The target may
    reason first, as `AnswerStream` reads it. With `content`, a grammar of its own, an answer has either calls or that;
    this takes a form in which calls begin with a marker.
    """
    marker = _Markers(tokens or {})
    if required:
        rules = _required(tool_format, parallel, marker)
    elif content:
        rules = ["calls: @content | required", *_renamed(_required(tool_format, parallel, marker))]
    else:
        rules = _free(tool_format, parallel, marker)
    rules = [*_thought(reasoning, opened, marker), *rules, *_objects(tool_format, tools, required, marker)]
    lark = _lark(rules, marker)
    return _with_content(lark, content) if content and not required else lark


def after_reasoning(content: str, reasoning: Reasoning, opened: bool, tokens: Mapping[str, int]) -> str:
    """The grammar `content`, before which the target may reason."""
    marker = _Markers(tokens)
    return _with_content(_lark([*_thought(reasoning, opened, marker), "calls: @content"], marker), content)


def begins_with_marker(tool_format: ToolFormat) -> bool:
    """Whether calls in this form cannot be taken for other JSON."""
    return tool_format not in BARE


def _lark(rules: Sequence[str], marker: _Markers) -> str:
    return "\n".join(["%llguidance {}", *rules, marker.text(), r"BLANK: /[ \t\r\n]{0,4}/", ""])


def _with_content(lark: str, content: str) -> str:
    """Both as one grammar; `content` is Lark, or grammars as llguidance writes them."""
    inner = json.loads(content)["grammars"] if content.startswith("{") else [{"lark_grammar": content}]
    return json.dumps({"grammars": [{"lark_grammar": lark}, {**inner[0], "name": "content"}, *inner[1:]]})


class _Markers:
    def __init__(self, tokens: Mapping[str, int]) -> None:
        self.tokens = tokens

    def __call__(self, marker: str) -> str:
        return f"<[{self.tokens[marker]}]>" if marker in self.tokens else json.dumps(marker)

    def text(self) -> str:
        """Any text but one that spells a marker out that is a token: a call would go unnoticed there."""
        spelled = "|".join(re.escape(marker).replace("/", r"\/") for marker in self.tokens)
        return r"TEXT: /(.|\n)*/" + (rf" & ~/(.|\n)*({spelled})(.|\n)*/" if spelled else "")

    def after_text(self, rule: str, marker: str) -> list[str]:
        """A rule for any text up to the first `marker`, and the marker."""
        lazy = "" if marker in self.tokens else "[lazy]"
        return [f"{rule}{lazy}: TEXT {self(marker)}"]


def _thought(reasoning: Reasoning | None, opened: bool, marker: _Markers) -> list[str]:
    if reasoning is None:
        return ["start: calls"]
    start = "start: thought BLANK calls" if opened else f"start: ({marker(reasoning.begin)} thought BLANK)? calls"
    return [start, *marker.after_text("thought", reasoning.end)]


def _required(tool_format: ToolFormat, parallel: bool, marker: _Markers) -> list[str]:
    more = f"({_separator(tool_format)} calls_of_one)*" if parallel else ""
    match tool_format:
        case "hermes" | "llama3":
            return [f"calls: calls_of_one {more}", *_of_one(tool_format, marker)]
        case "mistral" if marks.ARGS in marker.tokens:
            return [f"calls: {marker(marks.TOOL_CALLS)} named" + (" calls?" if parallel else "")]
        case "mistral":
            return [f'calls: {marker(marks.TOOL_CALLS)} " "? list', _list(parallel)]
        case "json":
            return ["calls: object" + (" | list" if parallel else ""), _list(parallel)]


def _free(tool_format: ToolFormat, parallel: bool, marker: _Markers) -> list[str]:
    if tool_format in BARE:
        return [
            "calls: NO_CALL | required",
            *_renamed(_required(tool_format, parallel, marker)),
            *_no_call(tool_format, marker),
        ]
    opening = marks.TOOL_CALL if tool_format == "hermes" else marks.TOOL_CALLS
    form = f'"\\n" object "\\n" {marker(marks.END_TOOL_CALL)}'
    if tool_format == "mistral":
        form = "named" if marks.ARGS in marker.tokens else '" "? list'
    calls = "calls: (opening call)* TEXT" if parallel else "calls: TEXT | opening call"
    return [calls, *marker.after_text("opening", opening), f"call: {form}", _list(parallel)]


def _renamed(rules: Sequence[str]) -> list[str]:
    return [rule.replace("calls:", "required:", 1).replace(" calls?", " required?") for rule in rules]


def _separator(tool_format: ToolFormat) -> str:
    return r'"\n"' if tool_format == "hermes" else '"; "'


def _of_one(tool_format: ToolFormat, marker: _Markers) -> list[str]:
    if tool_format == "hermes":
        begin, end = marker(marks.TOOL_CALL), marker(marks.END_TOOL_CALL)
        return [f'calls_of_one: {begin} "\\n" object "\\n" {end}']
    return ["calls_of_one: object"]


def _list(parallel: bool) -> str:
    return 'list: "[" object ' + ('(", " object)* ' if parallel else "") + '"]"'


def _no_call(tool_format: ToolFormat, marker: _Markers) -> list[str]:
    calls = [rf"{_BLANK}[{re.escape(BARE[tool_format])}](.|\n)*"]
    if tool_format == "llama3" and marks.PYTHON_TAG not in marker.tokens:  # a token stands in no text
        calls.append(r"(.|\n)*<\|python_tag\|>(.|\n)*")
    return ["NO_CALL: TEXT" + "".join(f" & ~/{call}/" for call in calls)]


def _objects(tool_format: ToolFormat, tools: Sequence[Tool], required: bool, marker: _Markers) -> list[str]:
    numbers = range(len(tools))
    key = "parameters" if tool_format == "llama3" else "arguments"
    rules = [
        "object: " + " | ".join(f"object_{n}" for n in numbers),
        "named: " + " | ".join(f"named_{n}" for n in numbers),
    ]
    for n, tool in enumerate(tools):
        head = json.dumps(f'{{"name": "{tool.name}", "{key}": ')
        rules += [
            f'object_{n}: {head} arguments_{n} "}}"',
            f"named_{n}: {json.dumps(tool.name)} {marker(marks.ARGS)} arguments_{n}",
            f"arguments_{n}: %json {json.dumps(arguments_schema(tool, required))}",
        ]
    return rules


def arguments_schema(tool: Tool, required: bool) -> dict[str, Any]:
    """The JSON schema of the arguments of a call."""
    enforced = tool.parameters if required or tool.strict else {}
    return {"type": "object", "x-guidance": _SPACES, **enforced}
