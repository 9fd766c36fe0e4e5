"""What a chat template tells of the form of calls, and of reasoning."""

from __future__ import annotations

import pytest

from core.parsing.formats import Reasoning, reasoning_of, takes_tools, tool_format

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
    assert tool_format(template) == expected


def test_tools_are_taken_by_code_that_reads_them() -> None:
    assert takes_tools(TOOLS)
    assert takes_tools("{%- set x = {'a': 1} %}{% if x and tools is defined %}")
    assert not takes_tools("{{ a }} tools {{ b }}")


def test_reasoning_has_the_markers_of_the_template() -> None:
    assert reasoning_of("{{ '<think>\\n\\n</think>' }}") == Reasoning("<think>", "</think>")
    assert reasoning_of("[THINK]..[/THINK]") == Reasoning("[THINK]", "[/THINK]")
    assert reasoning_of("{{ think }}") is None
