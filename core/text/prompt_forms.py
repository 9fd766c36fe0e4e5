"""The forms in which people write prompts, and the prompt of each.

    {"prompt": "..."}                                               a bare text
    {"messages": [{"role": "...", "content": "..."}], "tools": []}  OpenAI's; also contents of parts, calls, results
    {"conversations": [{"from": "human", "value": "..."}]}          ShareGPT's
    {"instruction": "...", "input": "..."}                          Alpaca's

Each may have a `task`, and each but the first a `system`. Answers are not taken over: the target makes its own. A
conversation ends before the assistant's turns at its end.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from core.text.prompts import Call, Message, Prompt

FORMS = '{"prompt": "..."}, {"messages": [...]}, {"conversations": [...]} or {"instruction": "..."}'

_ROLES = {"human": "user", "gpt": "assistant", "developer": "system"} | {
    role: role for role in ("system", "user", "assistant", "tool")
}
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_NO_PARAMETERS = {"type": "object", "properties": {}}
_SHOWN = 20  # names of fields, and characters of a strange value


class NoPrompt(Exception):
    """An object is no prompt; the message names the field and what to write instead."""


@dataclass
class Unused:
    """What no prompt of a file was made from: names of fields in the order of appearance, and answers."""

    fields: dict[str, None] = field(default_factory=dict)
    answers: int = 0

    def note(self, fields: Mapping[str, Any], used: Set[str], path: str = "") -> None:
        self.fields.update(dict.fromkeys(path + name for name in fields if name not in used))

    def __str__(self) -> str:
        """Both in words, or nothing."""
        names = [repr(name)[1:-1] for name in self.fields]  # which writes out what a terminal cannot show
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        parts = [f"the fields {', '.join(names[:_SHOWN])}{more}"] if names else []
        if self.answers:
            parts.append(f"the answers at the end of {self.answers} conversations, as the target makes its own")
        return "; ".join(parts)


def prompt_of(value: Any, unused: Unused) -> Prompt:
    """The prompt in the object of a line. Raises `NoPrompt`."""
    if not isinstance(value, dict):
        raise NoPrompt(f"{_shown(value)} is no prompt; write {FORMS}")
    line: dict[str, Any] = value
    for key, form in _FORMS.items():
        if line.get(key) is not None:
            task = _text(line["task"], "task", least=1) if line.get("task") is not None else None
            return replace(form(line, key, unused), task=task)
    names = ", ".join(repr(name) for name in [*line][:_SHOWN]) or "no field"
    raise NoPrompt(f"no prompt, but {names}; write {FORMS}")


def _bare(line: Mapping[str, Any], key: str, unused: Unused) -> Prompt:
    unused.note(line, {key, "task"})
    return Prompt(prompt=_text(line[key], key, least=1))


def _instruction(line: Mapping[str, Any], key: str, unused: Unused) -> Prompt:
    unused.note(line, {key, "input", "system", "task"})
    text, extra = _text(line[key], key, least=1), line.get("input")
    if extra is not None and _text(extra, "input").strip():
        text = f"{text}\n\n{extra}"
    return Prompt(messages=(*_system(line), Message("user", text)))


def _conversation(line: Mapping[str, Any], key: str, unused: Unused) -> Prompt:
    has_tools = isinstance(line.get("tools"), list)
    unused.note(line, {key, "system", "task"} | ({"tools"} if has_tools else set()))
    calls = _Calls()
    turns = [_turn(turn, f"{key}[{number}]", calls, unused) for number, turn in enumerate(_list(line[key], key))]
    if not turns:
        raise NoPrompt(f"`{key}` is empty; write at least one message")
    if turns[-1].role == "assistant":
        unused.answers += 1
    while turns and turns[-1].role == "assistant":
        turns.pop()
    if not turns:
        raise NoPrompt(f"`{key}` has only answers; write what they answer")
    first = () if turns[0].role == "system" else _system(line)
    tools = _list(line["tools"], "tools") if has_tools else []
    written = tuple(_tool(tool, f"tools[{number}]", unused) for number, tool in enumerate(tools))
    return Prompt(messages=(*first, *turns), tools=written)


_FORMS = {
    "messages": _conversation,
    "conversations": _conversation,
    "instruction": _instruction,
    "prompt": _bare,
}


def _system(line: Mapping[str, Any]) -> tuple[Message, ...]:
    """The system message that stands beside the others."""
    text = _text(line["system"], "system") if line.get("system") is not None else ""
    return (Message("system", text),) if text else ()


class _Calls:
    """Ids for the calls and results of a conversation that have none."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open = deque[str]()

    def begun(self, call_id: str | None) -> str:
        self._open.append(call_id or f"call_{next(self._numbers)}")
        return self._open[-1]

    def answered(self, call_id: str | None) -> str:
        """The id of the call that a result belongs to: the first without a result, if it does not say."""
        answered = call_id or (self._open[0] if self._open else f"call_{next(self._numbers)}")
        if answered in self._open:
            self._open.remove(answered)
        return answered


def _turn(value: Any, path: str, calls: _Calls, unused: Unused) -> Message:
    turn = _object(value, path)
    role_key = "from" if "from" in turn and "role" not in turn else "role"
    content_key = "value" if "value" in turn and "content" not in turn else "content"
    used = {role_key, content_key}
    role = _role(turn.get(role_key), f"{path}.{role_key}")
    called, answers = list[Any](), None
    if role == "assistant" and turn.get("tool_calls") is not None:
        used.add("tool_calls")
        called = _list(turn["tool_calls"], f"{path}.tool_calls")
    if role == "tool":
        used.add("tool_call_id")
        answers = calls.answered(_name(turn, "tool_call_id", path))
    unused.note(turn, used, f"{path.partition('[')[0]}[].")
    nothing = called and turn.get(content_key) is None
    content = "" if nothing else _content(turn.get(content_key), f"{path}.{content_key}")
    parsed = tuple(_call(call, f"{path}.tool_calls[{number}]", calls) for number, call in enumerate(called))
    return Message(role, content, parsed, answers)


def _role(value: Any, path: str) -> str:
    if not isinstance(value, str) or value not in _ROLES:
        raise NoPrompt(f"`{path}` is {_shown(value)}; write one of {', '.join(sorted(_ROLES))}")
    return _ROLES[value]


def _content(value: Any, path: str) -> str:
    if not isinstance(value, list):
        return _text(value, path, "a text or a list of text parts")
    return "".join(_part(part, f"{path}[{number}]") for number, part in enumerate(value))


def _part(value: Any, path: str) -> str:
    part = _object(value, path)
    key = _TEXT_PARTS.get(str(part.get("type")))
    if key is None:
        raise NoPrompt(f"`{path}.type` is {_shown(part.get('type'))}; only text is supported")
    return _text(part.get(key), f"{path}.{key}")


def _call(value: Any, path: str, calls: _Calls) -> Call:
    call = _object(value, path)
    function = _object(call.get("function"), f"{path}.function")
    name = _text(function.get("name"), f"{path}.function.name", least=1)
    arguments = function.get("arguments") or {}
    if not isinstance(arguments, str):
        arguments = _json(_object(arguments, f"{path}.function.arguments"), f"{path}.function.arguments")
    return Call(calls.begun(_name(call, "id", path)), name, _text(arguments, f"{path}.function.arguments"))


def _tool(value: Any, path: str, unused: Unused) -> str:
    """A tool as a service shows it to the template."""
    tool = _object(value, path)
    function = _object(tool.get("function"), f"{path}.function")
    unused.note(tool, {"type", "function"}, "tools[].")
    unused.note(function, {"name", "description", "parameters"}, "tools[].function.")
    shown: dict[str, Any] = {"name": _text(function.get("name"), f"{path}.function.name", least=1)}
    if (description := function.get("description")) is not None:
        shown["description"] = _text(description, f"{path}.function.description")
    shown["parameters"] = _object(function.get("parameters") or _NO_PARAMETERS, f"{path}.function.parameters")
    return _json({"type": "function", "function": shown}, path)


def _name(fields: Mapping[str, Any], key: str, path: str) -> str | None:
    value = fields.get(key)
    return None if value is None else _text(value, f"{path}.{key}")


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NoPrompt(f"`{path}` is {_shown(value)}; write an object")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise NoPrompt(f"`{path}` is {_shown(value)}; write a list")
    return value


def _text(value: Any, path: str, form: str = "a text", least: int = 0) -> str:
    if not isinstance(value, str) or len(value) < least:
        raise NoPrompt(f"`{path}` is {_shown(value)}; write {form}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = value[error.start].encode("unicode-escape").decode()
        raise NoPrompt(
            f"`{path}` has a lone surrogate, {half}, which is half a character; write both halves, or neither"
        ) from error
    return value


def _json(value: Any, path: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise NoPrompt(f"`{path}` has NaN or an infinite number, which JSON has not") from error
    return _text(text, path)


def _shown(value: Any) -> str:
    """A strange value in few words."""
    match value:
        case None:
            return "missing or null"
        case "":
            return "empty"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str() if len(value) > _SHOWN:
            return "a text"
    return json.dumps(value)[: 2 * _SHOWN]
