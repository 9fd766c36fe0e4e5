"""The registry of tool formats, and what a chat template tells of calls and of reasoning."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from core.tools.formats import FORMATS, FormatName, format_of, takes_tools
from core.tools.reasoning import Reasoning, reasoning_of

TOOLS = "{%- if tools %}{{ tools | tojson }}{%- endif %}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (TOOLS + "<tool_call>\n{'name': ...}\n</tool_call>", "hermes"),
        (TOOLS + "{{ '[TOOL_CALLS]' }}", "mistral"),
        (TOOLS + "<|start_header_id|>{{ '<|python_tag|>' }}", "llama3"),
        (TOOLS + '<|start_header_id|>{"name": function, "parameters": {}}', "llama3"),
        (TOOLS, "json"),
        ("{% for tool in tools %}{{ {'a': tool} }}{% endfor %}", "json"),
        ("{{ messages[0].content }} You have tools: <tool_call>", None),
        (TOOLS + "<tool_call><function=name>", None),
        (TOOLS + "<tool_call>name<arg_key>", None),
        ("", None),
    ],
)
def test_the_template_says_how_calls_are_written(template: str, expected: str | None) -> None:
    tool_format = format_of(template)
    assert (tool_format and tool_format.name) == expected


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_called_by_the_name_that_it_is_known_by(name: str) -> None:
    assert FORMATS[name].name == name == TypeAdapter(FormatName).validate_python(name)
    assert FORMATS[name].bare or FORMATS[name].opening


def test_a_configuration_takes_no_format_that_is_not_known() -> None:
    with pytest.raises(ValidationError, match="'hermes'"):
        TypeAdapter(FormatName).validate_python("hermse")


def test_tools_are_taken_by_code_that_reads_them() -> None:
    assert takes_tools(TOOLS)
    assert takes_tools("{%- set x = {'a': 1} %}{% if x and tools is defined %}")
    assert not takes_tools("{{ a }} tools {{ b }}")


def test_reasoning_has_the_markers_of_the_template() -> None:
    assert reasoning_of("{{ '<think>\\n\\n</think>' }}") == Reasoning("<think>", "</think>")
    assert reasoning_of("[THINK]..[/THINK]") == Reasoning("[THINK]", "[/THINK]")
    assert reasoning_of("{{ think }}") is None
