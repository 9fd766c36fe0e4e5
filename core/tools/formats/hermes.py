"""Hermes' format, which Qwen's models use, too: each call is JSON between markers, behind text or none."""

from __future__ import annotations

from collections.abc import Sequence

from core.tools.format import ToolFormat
from core.tools.lark import Lark, repeated
from core.tools.markers import declared


class Hermes(ToolFormat):
    name = "hermes"
    opening = declared("<tool_call>")
    closing = declared("</tool_call>")

    def is_asked_for(self, template: str) -> bool:
        return self.opening in template

    def shown(self, calls: Sequence[str]) -> str:
        return "\n".join(f"{self.opening}\n{call}\n{self.closing}" for call in calls)

    def block_rule(self, lark: Lark, parallel: bool) -> str:
        return rf'"\n" call "\n" {lark.marker(self.closing)}'

    def calls_rule(self, lark: Lark, parallel: bool) -> str:
        return repeated(f"({lark.marker(self.opening)} {self.block_rule(lark, parallel)})", "\n", parallel)
