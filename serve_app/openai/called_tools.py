"""The calls of one response in OpenAI's form, with the ids by which clients answer them."""

from __future__ import annotations

import secrets
from collections import Counter

from core.generation import FinishReason
from core.parsing.answer import AnswerDelta, CallPart
from serve_app.openai.choices import Piece
from serve_app.openai.responses import (
    AssistantMessage,
    CalledFunction,
    ChatFinishReason,
    Delta,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
)


class CalledTools:
    """Remembers which choices of a response have called, so that their last chunk can say so."""

    def __init__(self) -> None:
        self._num_calls = Counter[int]()  # by choice

    def message(self, choice: int, said: AnswerDelta) -> AssistantMessage:
        """A whole answer."""
        calls = [
            ToolCall(id=self._new_id(choice), function=CalledFunction(name=call.name or "", arguments=call.arguments))
            for call in said.calls
        ]
        return AssistantMessage(
            content=said.content or (None if calls else ""),
            reasoning_content=said.reasoning or None,
            tool_calls=calls or None,
        )

    def delta(self, choice: int, said: AnswerDelta) -> Delta:
        """What is new; content that is empty is left out if there is anything else."""
        calls = [self._call(choice, call) for call in said.calls]
        return Delta(
            content=said.content or (None if calls or said.reasoning else ""),
            reasoning_content=said.reasoning or None,
            tool_calls=calls or None,
        )

    def finish_reason(self, choice: int, piece: Piece) -> ChatFinishReason | None:
        """That of the piece, or `tool_calls` where the choice has any and was not cut off."""
        reason: FinishReason | None = piece.finish_reason
        return "tool_calls" if reason == "stop" and self._num_calls[choice] else reason

    def _call(self, choice: int, call: CallPart) -> ToolCallDelta:
        function = FunctionDelta(name=call.name, arguments=call.arguments)
        if call.name is None:
            return ToolCallDelta(index=call.index, function=function)
        return ToolCallDelta(index=call.index, id=self._new_id(choice), type="function", function=function)

    def _new_id(self, choice: int) -> str:
        self._num_calls[choice] += 1
        return f"call_{secrets.token_hex(12)}"
