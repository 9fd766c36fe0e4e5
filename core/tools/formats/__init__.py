"""The tool formats that are known, a file each.

hermes      <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several in a row, after text (Hermes, Qwen)
mistral     [TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name[ARGS]{...} several times
llama3      {"name": ..., "parameters": {...}}, several with ";" between, or anywhere after <|python_tag|>
plain_json  the answer is such an object or a list of them, perhaps in a fence; its name is "json"

So calls are asked for. What else models write, and is read, the table in tests/core/tools/call_forms.py has.
`core.tools` says how to add a format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from core.tools.format import ToolFormat
from core.tools.formats.hermes import Hermes
from core.tools.formats.llama3 import Llama3
from core.tools.formats.mistral import Mistral
from core.tools.formats.plain_json import PlainJson

# In this order templates are looked at; plain JSON is what is left where no other is asked for.
FORMATS: Mapping[str, ToolFormat] = {
    tool_format.name: tool_format for tool_format in (Hermes(), Mistral(), Llama3(), PlainJson())
}

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[tuple(FORMATS)]  # so a configuration with another name is refused

_TAKES_TOOLS = re.compile(r"\{[{%](?:(?![}%]\}).)*?\btools\b", re.DOTALL)
_NOT_READ = ("<function=", "<arg_key>", "<｜tool▁call▁begin｜>", "<|channel|>")  # formats of XML and others


def takes_tools(template: str) -> bool:
    """Whether the code of a chat template reads `tools`."""
    return _TAKES_TOOLS.search(template) is not None


def format_of(template: str) -> ToolFormat | None:
    """The format in which a template asks for calls; None if it takes no tools, or asks for one that is not known."""
    if not takes_tools(template) or any(text in template for text in _NOT_READ):
        return None
    return next(tool_format for tool_format in FORMATS.values() if tool_format.is_asked_for(template))
