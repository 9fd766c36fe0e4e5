"""A grammar whose texts are calls of tools with valid arguments, in the format that the target uses.

A marker that is a token of the target's tokenizer is that token in the grammar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from core.grammar.building import ONE_SPACE
from core.tools.format import ToolFormat
from core.tools.lark import Lark
from core.tools.reasoning import Reasoning


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
    this takes a format whose calls begin with a marker.
    """
    lark = Lark(tokens or {})
    if required:
        answer = ["answer: calls"]
    elif content:
        answer = ["answer: @content | calls"]
    else:
        answer = _free(tool_format, parallel, lark)
    calls = f"calls: {tool_format.calls_rule(lark, parallel)}"
    whole = _written(
        [*_begin(reasoning, opened, lark), *answer, calls, *_tools(tool_format, tools, required, lark)], lark
    )
    return _with_content(whole, content) if content and not required else whole


def after_reasoning(content: str, reasoning: Reasoning, opened: bool, tokens: Mapping[str, int]) -> str:
    """The grammar `content`, before which the target may reason."""
    lark = Lark(tokens)
    return _with_content(_written([*_begin(reasoning, opened, lark), "answer: @content"], lark), content)


def _written(rules: Sequence[str], lark: Lark) -> str:
    return "\n".join(["%llguidance {}", *rules, lark.text(), r"BLANK: /[ \t\r\n]{0,4}/", ""])


def _with_content(whole: str, content: str) -> str:
    """Both as one grammar; `content` is Lark, or grammars as llguidance writes them."""
    inner = json.loads(content)["grammars"] if content.startswith("{") else [{"lark_grammar": content}]
    return json.dumps({"grammars": [{"lark_grammar": whole}, {**inner[0], "name": "content"}, *inner[1:]]})


def _begin(reasoning: Reasoning | None, opened: bool, lark: Lark) -> list[str]:
    if reasoning is None:
        return ["start: answer"]
    begin = "thought BLANK" if opened else f"({lark.marker(reasoning.begin)} thought BLANK)?"
    return [f"start: {begin} answer", lark.up_to("thought", reasoning.end)]


def _free(tool_format: ToolFormat, parallel: bool, lark: Lark) -> list[str]:
    """An answer with calls or without."""
    if tool_format.bare:
        return ["answer: NO_CALL | calls", lark.text_without("NO_CALL", tool_format.bare, tool_format.opening)]
    return [
        "answer: (opening block)* TEXT" if parallel else "answer: TEXT | opening block",
        lark.up_to("opening", tool_format.opening),
        f"block: {tool_format.block_rule(lark, parallel)}",
    ]


def _tools(tool_format: ToolFormat, tools: Sequence[Tool], required: bool, lark: Lark) -> list[str]:
    rules = ["call: " + " | ".join(f"call_{n}" for n in range(len(tools)))]
    for n, tool in enumerate(tools):
        rules += [
            f"call_{n}: {tool_format.call_rule(lark, tool.name, f'arguments_{n}')}",
            f"arguments_{n}: %json {json.dumps(_arguments(tool, required))}",
        ]
    return rules


def _arguments(tool: Tool, required: bool) -> dict[str, Any]:
    """The JSON schema of the arguments of a call."""
    enforced = tool.parameters if required or tool.strict else {}
    return {"type": "object", "x-guidance": ONE_SPACE, **enforced}
