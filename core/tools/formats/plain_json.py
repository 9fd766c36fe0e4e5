"""The format of models that have none of their own: an answer is a call in JSON, or a list of calls."""

from __future__ import annotations

from collections.abc import Sequence

from core.tools.format import ToolFormat
from core.tools.lark import Lark, listed


class PlainJson(ToolFormat):
    name = "json"
    bare = "{["

    def is_asked_for(self, template: str) -> bool:
        return True

    def shown(self, calls: Sequence[str]) -> str:
        return calls[0] if len(calls) == 1 else f"[{', '.join(calls)}]"

    def calls_rule(self, lark: Lark, parallel: bool) -> str:
        return "call" + (f" | {listed('call', parallel)}" if parallel else "")
