"""What an answer says, in OpenAI's form: its calls, with the ids by which clients answer them, and why it ended."""

from __future__ import annotations

import secrets

from core.tools.answer import AnswerDelta, CallPart
from serve_app.http.output.choices import Piece
from serve_app.protocols.openai.bodies import (
    AssistantMessage,
    CalledFunction,
    ChatFinishReason,
    Delta,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
)


def message_of(said: AnswerDelta) -> AssistantMessage:
    """A whole answer."""
    calls = [
        ToolCall(id=_new_id(), function=CalledFunction(name=call.name or "", arguments=call.arguments))
        for call in said.calls
    ]
    return AssistantMessage(
        content=said.content or (None if calls else ""),
        reasoning_content=said.reasoning or None,
        tool_calls=calls or None,
    )


def delta_of(said: AnswerDelta) -> Delta:
    """What is new; content that is empty is left out if there is anything else."""
    calls = list(map(_call, said.calls))
    return Delta(
        content=said.content or (None if calls or said.reasoning else ""),
        reasoning_content=said.reasoning or None,
        tool_calls=calls or None,
    )


def finish_reason(piece: Piece) -> ChatFinishReason | None:
    """That of the piece, or `tool_calls` where the choice has any and was not cut off in one."""
    return "tool_calls" if piece.finish_reason == "stop" and piece.calls == "whole" else piece.finish_reason


def _call(call: CallPart) -> ToolCallDelta:
    function = FunctionDelta(name=call.name, arguments=call.arguments)
    if call.name is None:
        return ToolCallDelta(index=call.index, function=function)
    return ToolCallDelta(index=call.index, id=_new_id(), type="function", function=function)


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"
