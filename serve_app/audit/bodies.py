"""The bodies of answers, whole or as the chunks of a stream, as far as an audit reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict


class Recorded(BaseModel):
    """What is read of an answer; it may have other fields."""

    model_config = ConfigDict(strict=True, frozen=True)


class RecordedFunction(Recorded):
    name: str
    arguments: str = ""


class RecordedCall(Recorded):
    function: RecordedFunction


class RecordedReply(Recorded):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # vLLM's newer name
    tool_calls: list[RecordedCall] | None = None

    @property
    def parts(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Reasoning, content and calls."""
        calls = tuple((call.function.name, call.function.arguments) for call in self.tool_calls or ())
        return self.reasoning_content or self.reasoning or "", self.content or "", calls


class RecordedChoice(Recorded):
    index: int | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    text: str | None = None
    message: RecordedReply | None = None


class RecordedAnswer(Recorded):
    choices: list[RecordedChoice] | None = None
    seed: int | None = None
    error: Any = None


class RecordedFunctionDelta(Recorded):
    name: str | None = None
    arguments: str | None = None


class RecordedCallDelta(Recorded):
    index: int = 0
    function: RecordedFunctionDelta = RecordedFunctionDelta()


class RecordedDelta(Recorded):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[RecordedCallDelta] | None = None


class RecordedChunkChoice(Recorded):
    index: int = 0
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    text: str | None = None
    delta: RecordedDelta | None = None


class RecordedChunk(Recorded):
    choices: list[RecordedChunkChoice] = []
    seed: int | None = None
    error: Any = None


def joined(chunks: Sequence[RecordedChunk]) -> RecordedAnswer:
    """The answer that a stream made up; without a finish reason it was cut, by an error or otherwise."""
    parts: dict[int, list[RecordedChunkChoice]] = {}
    for chunk in chunks:
        for part in chunk.choices:
            parts.setdefault(part.index, []).append(part)
    error = next((chunk.error for chunk in chunks if chunk.error is not None), None) if not parts else None
    seed = next((chunk.seed for chunk in chunks if chunk.seed is not None), None)
    choices = [_choice(index, parts[index]) for index in sorted(parts)]
    return RecordedAnswer(choices=choices, seed=seed, error=error)


def _choice(index: int, parts: Sequence[RecordedChunkChoice]) -> RecordedChoice:
    deltas = [part.delta for part in parts if part.delta is not None]
    has_ids = any(part.token_ids is not None for part in parts)
    return RecordedChoice(
        index=index,
        finish_reason=next((part.finish_reason for part in parts if part.finish_reason is not None), None),
        token_ids=[token for part in parts for token in part.token_ids or ()] if has_ids else None,
        text=None if deltas else "".join(part.text or "" for part in parts),
        message=_reply(deltas) if deltas else None,
    )


def _reply(deltas: Sequence[RecordedDelta]) -> RecordedReply:
    calls: dict[int, RecordedFunction] = {}
    for delta in deltas:
        for call in delta.tool_calls or ():
            before = calls.get(call.index, RecordedFunction(name=""))
            name, arguments = call.function.name or "", call.function.arguments or ""
            calls[call.index] = RecordedFunction(name=before.name + name, arguments=before.arguments + arguments)
    return RecordedReply(
        content="".join(delta.content or "" for delta in deltas),
        reasoning_content="".join(delta.reasoning_content or delta.reasoning or "" for delta in deltas),
        tool_calls=[RecordedCall(function=calls[index]) for index in sorted(calls)],
    )
