"""Which markers and forms a chat template uses for calls of tools and for reasoning.

hermes    <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several in a row, after text (Hermes, Qwen)
llama3    {"name": ..., "parameters": {...}}, several with ";" between, or anywhere after <|python_tag|>
mistral   [TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name[ARGS]{...} several times
json      the answer is such an object or a list of them, perhaps in a fence

So calls are asked for. What else models write, and is read, the table in tests/core/parsing/call_forms.py has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from core.parsing import marks

ToolFormat = Literal["hermes", "llama3", "mistral", "json"]

BARE: Mapping[ToolFormat, str] = {"llama3": "{", "json": "{["}
"""With what calls begin where no marker does, as grammars write them. Such an answer is calls and nothing else."""

_TAKES_TOOLS = re.compile(r"\{[{%](?:(?![}%]\}).)*?\btools\b", re.DOTALL)
_OTHER_FORMS = ("<function=", "<arg_key>", "<｜tool▁call▁begin｜>", "<|channel|>")  # XML and others that are not read


class Reasoning(NamedTuple):
    """The markers around the target's reasoning, which comes before all else in an answer."""

    begin: str
    end: str


def takes_tools(template: str) -> bool:
    """Whether the code of a chat template reads `tools`."""
    return _TAKES_TOOLS.search(template) is not None


def tool_format(template: str) -> ToolFormat | None:
    """The form in which a template asks for calls; None if it takes no tools, or asks for a form that is not read."""
    if not takes_tools(template) or any(form in template for form in _OTHER_FORMS):
        return None
    if marks.TOOL_CALL in template:
        return "hermes"
    if marks.TOOL_CALLS in template:
        return "mistral"
    if marks.PYTHON_TAG in template or "<|start_header_id|>" in template:
        return "llama3"
    return "json"


def reasoning_of(template: str) -> Reasoning | None:
    """The markers of reasoning that a template knows; None if it knows none."""
    if marks.END_THINK in template:
        return Reasoning(marks.THINK, marks.END_THINK)
    if marks.END_BRACKET_THINK in template:
        return Reasoning(marks.BRACKET_THINK, marks.END_BRACKET_THINK)
    return None
