"""Llama 3's format: an answer is calls in JSON and nothing else, or has them behind a marker."""

from __future__ import annotations

from collections.abc import Sequence

from core.tools.format import ToolFormat
from core.tools.lark import Lark, repeated
from core.tools.markers import declared


class Llama3(ToolFormat):
    name = "llama3"
    opening = declared("<|python_tag|>")
    bare = "{"
    arguments_key = "parameters"

    def is_asked_for(self, template: str) -> bool:
        return self.opening in template or "<|start_header_id|>" in template

    def shown(self, calls: Sequence[str]) -> str:
        return "; ".join(calls)

    def calls_rule(self, lark: Lark, parallel: bool) -> str:
        return repeated("call", "; ", parallel)
