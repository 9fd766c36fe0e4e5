"""Answers to /v1/completions and /v1/chat/completions, whole and as chunks without names, the last of them "[DONE]"."""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, ClassVar

from core.text.tokenizer import Tokenizer
from core.tools.answer import AnswerDelta, CallPart
from serve_app.http.errors import ErrorBody, failure_of
from serve_app.http.output.choices import NOTHING, Piece
from serve_app.http.output.usage import Usage
from serve_app.http.schema.requests import GenerationFields, StreamOptions
from serve_app.http.writer import AnswerWriter, event, event_data
from serve_app.protocols.openai.bodies import (
    AssistantMessage,
    CalledFunction,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatFinishReason,
    ChatLogprobs,
    ChoiceSpeculation,
    ChunkChoice,
    Completion,
    Delta,
    FunctionDelta,
    RunSpeculation,
    TextChoice,
    ToolCall,
    ToolCallDelta,
)
from serve_app.protocols.openai.logprobs import Echo, chat_logprobs, completion_logprobs

Chunk = Completion | ChatCompletionChunk


class ChunkWriter(AnswerWriter):
    """Answers `body`; all its bodies have the same id, time and model. `seed` is that of the answer, if it has one.

    With `include_usage` the last chunk has the usage and no choices; with `continuous_usage_stats` every chunk has it,
    as it is by then. With `include_speculation` each tells who proposed its run.
    """

    prefix: ClassVar[str]  # of the id

    def __init__(self, body: GenerationFields, tokenizer: Tokenizer, seed: int | None) -> None:
        self._tokenizer = tokenizer
        self._seed = seed
        self._logprobs = body.alternatives is not None
        self._options = body.stream_options or StreamOptions()
        id_ = f"{self.prefix}-{secrets.token_hex(12)}"
        self._head: dict[str, Any] = {"id": id_, "created": int(time.time()), "model": body.model}

    def piece(self, index: int, piece: Piece, usage: Callable[[], Usage]) -> bytes:
        chunk = self._chunk(index, piece)
        return event(chunk.model_copy(update={"usage": usage()}) if self._options.continuous_usage_stats else chunk)

    def failure(self, error: Exception) -> bytes:
        return event(ErrorBody(error=failure_of(error).detail))

    def closing(self, usage: Usage) -> bytes:
        return (event(self._usage_chunk(usage)) if self._options.include_usage else b"") + event_data(b"[DONE]")

    @abstractmethod
    def _chunk(self, index: int, piece: Piece) -> Chunk: ...

    @abstractmethod
    def _usage_chunk(self, usage: Usage) -> Chunk: ...

    def _facts(self, index: int, piece: Piece) -> dict[str, Any]:
        """The fields that every kind of choice has."""
        counts: dict[str, Any] = {
            "proposed": piece.proposed,
            "accepted": piece.accepted,
            "accepted_characters": piece.accepted_characters,
        }
        speculation = ChoiceSpeculation(**counts)
        if self._options.include_speculation and piece.number is not None:
            speculation = RunSpeculation(**counts, source=piece.source, task=piece.task, number=piece.number)
        return {"index": index, "token_ids": list(piece.tokens), "speculation": speculation}


class CompletionWriter(ChunkWriter):
    """/v1/completions, where a chunk has the shape of an answer. `echoes` are the prompts to show, by index."""

    prefix = "cmpl"

    def __init__(self, body: GenerationFields, tokenizer: Tokenizer, seed: int | None, echoes: Sequence[Echo]) -> None:
        super().__init__(body, tokenizer, seed)
        self._echoes = echoes

    def whole(self, choices: Sequence[Piece], usage: Usage) -> Completion:
        texts = list(starmap(self._choice, enumerate(choices)))
        return Completion(**self._head, choices=texts, seed=self._seed, usage=usage)

    def _chunk(self, index: int, piece: Piece) -> Completion:
        seed = self._seed if piece.begins else None
        return Completion(**self._head, choices=[self._choice(index, piece)], seed=seed)

    def _usage_chunk(self, usage: Usage) -> Completion:
        return Completion(**self._head, choices=[], usage=usage)

    def _choice(self, index: int, piece: Piece) -> TextChoice:
        text, logprobs = piece.text, completion_logprobs(piece, self._tokenizer) if self._logprobs else None
        if self._echoes:
            echo = self._echoes[index]
            text = echo.text + text if piece.begins else text
            logprobs = None if logprobs is None else echo.before(piece, logprobs)
        return TextChoice(text=text, logprobs=logprobs, finish_reason=piece.finish_reason, **self._facts(index, piece))


class ChatWriter(ChunkWriter):
    """/v1/chat/completions."""

    prefix = "chatcmpl"

    def whole(self, choices: Sequence[Piece], usage: Usage) -> ChatCompletion:
        messages = list(starmap(self._choice, enumerate(choices)))
        return ChatCompletion(**self._head, choices=messages, seed=self._seed, usage=usage)

    def opening(self, index: int, /) -> bytes:
        chunk = self._chunk_of(index, NOTHING, Delta(role="assistant", content=""), None)
        return event(chunk.model_copy(update={"seed": self._seed}))

    def _chunk(self, index: int, piece: Piece) -> ChatCompletionChunk:
        return self._chunk_of(index, piece, _delta(piece.delta), self._shown_logprobs(piece))

    def _usage_chunk(self, usage: Usage) -> ChatCompletionChunk:
        return ChatCompletionChunk(**self._head, choices=[], usage=usage)

    def _choice(self, index: int, piece: Piece) -> ChatChoice:
        return ChatChoice(
            message=_message(piece.delta),
            logprobs=self._shown_logprobs(piece),
            finish_reason=_finish_reason(piece),
            **self._facts(index, piece),
        )

    def _chunk_of(self, index: int, piece: Piece, delta: Delta, logprobs: ChatLogprobs | None) -> ChatCompletionChunk:
        choice = ChunkChoice(
            delta=delta, logprobs=logprobs, finish_reason=_finish_reason(piece), **self._facts(index, piece)
        )
        return ChatCompletionChunk(**self._head, choices=[choice])

    def _shown_logprobs(self, piece: Piece) -> ChatLogprobs | None:
        return chat_logprobs(piece, self._tokenizer) if self._logprobs else None


def _finish_reason(piece: Piece) -> ChatFinishReason | None:
    """That of the piece, or `tool_calls` where the choice has any and was not cut off in one."""
    return "tool_calls" if piece.finish_reason == "stop" and piece.calls == "whole" else piece.finish_reason


def _message(answer: AnswerDelta) -> AssistantMessage:
    calls = [
        ToolCall(id=_call_id(), function=CalledFunction(name=call.name or "", arguments=call.arguments))
        for call in answer.calls
    ]
    return AssistantMessage(
        content=answer.content or (None if calls else ""),
        reasoning_content=answer.reasoning or None,
        tool_calls=calls or None,
    )


def _delta(delta: AnswerDelta) -> Delta:
    """What is new; content that is empty is left out if there is anything else."""
    calls = list(map(_call_delta, delta.calls))
    return Delta(
        content=delta.content or (None if calls or delta.reasoning else ""),
        reasoning_content=delta.reasoning or None,
        tool_calls=calls or None,
    )


def _call_delta(call: CallPart) -> ToolCallDelta:
    function = FunctionDelta(name=call.name, arguments=call.arguments)
    if call.name is None:
        return ToolCallDelta(index=call.index, function=function)
    return ToolCallDelta(index=call.index, id=_call_id(), type="function", function=function)


def _call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
