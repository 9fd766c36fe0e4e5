"""Mistral's format: a marker, and a list of calls in JSON; of newer models a name and the arguments for each call."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from core.tools.call_reader import CallReader
from core.tools.character_reader import Steps
from core.tools.format import ToolFormat
from core.tools.lark import Lark, listed
from core.tools.markers import declared

_CALL_ID, _ARGS = declared("[CALL_ID]"), declared("[ARGS]")
_ID = re.compile("[a-zA-Z0-9]{9}")  # of a call; the templates refuse others


class Mistral(ToolFormat):
    """The tokenizer tells which models are newer: it has the marker before the arguments as a token."""

    name = "mistral"
    opening = declared("[TOOL_CALLS]")

    def is_asked_for(self, template: str) -> bool:
        return self.opening in template

    def template_message(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """With ids of calls as the templates take them."""
        changed = dict(message)
        if calls := message.get("tool_calls"):
            changed["tool_calls"] = [{**call, "id": _short_id(call["id"])} for call in calls]
        if "tool_call_id" in message:
            changed["tool_call_id"] = _short_id(message["tool_call_id"])
        return changed

    def shown(self, calls: Sequence[str]) -> str:
        return f"{self.opening} [{', '.join(calls)}]"

    def call_rule(self, lark: Lark, name: str, arguments: str) -> str:
        if _ARGS in lark.tokens:
            return f"{json.dumps(name)} {lark.marker(_ARGS)} {arguments}"
        return super().call_rule(lark, name, arguments)

    def block_rule(self, lark: Lark, parallel: bool) -> str:
        return "call" if _ARGS in lark.tokens else f'" "? {listed("call", parallel)}'

    def calls_rule(self, lark: Lark, parallel: bool) -> str:
        block = f"{lark.marker(self.opening)} {self.block_rule(lark, parallel)}"
        return f"({block})+" if parallel and _ARGS in lark.tokens else block

    def read_block(self, answer: CallReader) -> Steps[bool]:
        yield from answer.spaces()
        called = yield from (answer.json_calls() if answer.char in ("[", "{", "`") else _named(answer))
        return called


def _named(answer: CallReader) -> Steps[bool]:
    """`name[ARGS]{...}`, perhaps with an id between."""
    name = yield from answer.word(answer.names)
    if name not in answer.names:
        return False
    marked = answer.begins(_ARGS) or answer.begins(_CALL_ID)
    if marked:
        marker = yield from answer.read(_ARGS, _CALL_ID)
        if marker == _CALL_ID:
            while answer.char.isalnum():
                yield from answer.hold()
            marker = yield from answer.read(_ARGS)
        if marker is None:
            return False
    yield from answer.spaces()
    return (marked or answer.char == "{") and (yield from answer.call_arguments(name)) is not None


def _short_id(call_id: str) -> str:
    return call_id if _ID.fullmatch(call_id) else hashlib.sha256(call_id.encode()).hexdigest()[:9]
