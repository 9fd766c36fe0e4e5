"""Pieces and usage enter, response bodies leave: one format for completions, one for chat."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Protocol

from core.tokenizer import Tokenizer
from serve_app.openai.choices import NOTHING, Piece
from serve_app.openai.logprobs import chat_logprobs, completion_logprobs
from serve_app.openai.responses import (
    Answer,
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatLogprobs,
    ChunkChoice,
    Completion,
    CompletionLogprobs,
    Delta,
    SpeculationCounts,
    TextChoice,
    Usage,
)


class Format(Protocol):
    """How one endpoint writes the answer to one request."""

    def answer(self, choices: Sequence[Piece], usage: Usage) -> Answer:
        """The whole answer, `choices` in the order of their indices."""

    def opening(self, index: int, /) -> Answer | None:
        """What comes before the first piece of the choice `index`, if anything."""

    def chunk(self, index: int, piece: Piece) -> Answer:
        """A piece of the choice `index`."""

    def closing(self, usage: Usage) -> Answer:
        """The chunk without choices that tells the usage."""


class CompletionFormat:
    """/v1/completions, where a chunk has the shape of an answer."""

    def __init__(self, tokenizer: Tokenizer, model: str, logprobs: bool) -> None:
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._id, self._created, self._model = _new_id("cmpl"), int(time.time()), model

    def answer(self, choices: Sequence[Piece], usage: Usage) -> Completion:
        return self._body([self._choice(index, piece) for index, piece in enumerate(choices)], usage)

    def opening(self, _index: int, /) -> None:
        return None

    def chunk(self, index: int, piece: Piece) -> Completion:
        return self._body([self._choice(index, piece)])

    def closing(self, usage: Usage) -> Completion:
        return self._body([], usage)

    def _body(self, choices: list[TextChoice], usage: Usage | None = None) -> Completion:
        return Completion(id=self._id, created=self._created, model=self._model, choices=choices, usage=usage)

    def _choice(self, index: int, piece: Piece) -> TextChoice:
        return TextChoice(
            index=index,
            text=piece.text,
            logprobs=self._shown_logprobs(piece),
            finish_reason=piece.finish_reason,
            token_ids=list(piece.tokens),
            speculation=_counts(piece),
        )

    def _shown_logprobs(self, piece: Piece) -> CompletionLogprobs | None:
        return completion_logprobs(piece, self._tokenizer) if self._logprobs else None


class ChatFormat:
    """/v1/chat/completions."""

    def __init__(self, tokenizer: Tokenizer, model: str, logprobs: bool) -> None:
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._id, self._created, self._model = _new_id("chatcmpl"), int(time.time()), model

    def answer(self, choices: Sequence[Piece], usage: Usage) -> ChatCompletion:
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[self._choice(index, piece) for index, piece in enumerate(choices)],
            usage=usage,
        )

    def opening(self, index: int, /) -> ChatCompletionChunk:
        return self._chunk([_chunk_choice(index, NOTHING, Delta(role="assistant", content=""), None)])

    def chunk(self, index: int, piece: Piece) -> ChatCompletionChunk:
        return self._chunk([_chunk_choice(index, piece, Delta(content=piece.text), self._shown_logprobs(piece))])

    def closing(self, usage: Usage) -> ChatCompletionChunk:
        return self._chunk([], usage)

    def _chunk(self, choices: list[ChunkChoice], usage: Usage | None = None) -> ChatCompletionChunk:
        return ChatCompletionChunk(id=self._id, created=self._created, model=self._model, choices=choices, usage=usage)

    def _choice(self, index: int, piece: Piece) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=AssistantMessage(content=piece.text),
            logprobs=self._shown_logprobs(piece),
            finish_reason=piece.finish_reason,
            token_ids=list(piece.tokens),
            speculation=_counts(piece),
        )

    def _shown_logprobs(self, piece: Piece) -> ChatLogprobs | None:
        return chat_logprobs(piece, self._tokenizer) if self._logprobs else None


def _chunk_choice(index: int, piece: Piece, delta: Delta, logprobs: ChatLogprobs | None) -> ChunkChoice:
    return ChunkChoice(
        index=index,
        delta=delta,
        logprobs=logprobs,
        finish_reason=piece.finish_reason,
        token_ids=list(piece.tokens),
        speculation=_counts(piece),
    )


def _counts(piece: Piece) -> SpeculationCounts:
    return SpeculationCounts(proposed=piece.proposed, accepted=piece.accepted)


def _new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(12)}"
