"""Response bodies, whole and streamed: one format for completions, one for chat."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import starmap
from typing import Any, ClassVar

from core.text.tokenizer import Tokenizer
from serve_app.http.output.choices import NOTHING, Piece
from serve_app.http.output.usage import Usage
from serve_app.protocols.openai.bodies import (
    Answer,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatLogprobs,
    ChoiceSpeculation,
    ChunkChoice,
    Completion,
    Delta,
    TextChoice,
)
from serve_app.protocols.openai.called_tools import delta_of, finish_reason, message_of
from serve_app.protocols.openai.echo import Echo
from serve_app.protocols.openai.logprobs import chat_logprobs, completion_logprobs


class Format(ABC):
    """Builds the response bodies of one request to an endpoint, all with the same id, time and model."""

    prefix: ClassVar[str]  # of the id

    def __init__(self, tokenizer: Tokenizer, model: str, logprobs: bool) -> None:
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        id_ = f"{self.prefix}-{secrets.token_hex(12)}"
        self._head: dict[str, Any] = {"id": id_, "created": int(time.time()), "model": model}

    @abstractmethod
    def answer(self, choices: Sequence[Piece], usage: Usage) -> Answer:
        """The complete answer, `choices` in the order of their indices."""

    def opening(self, _index: int, /) -> Answer | None:
        """The chunk before the first piece of the choice `index`, if the endpoint has one."""
        return None

    @abstractmethod
    def chunk(self, index: int, piece: Piece) -> Answer:
        """The chunk for a piece of the choice `index`."""

    @abstractmethod
    def closing(self, usage: Usage) -> Answer:
        """The last chunk, which has the usage and no choices."""


class CompletionFormat(Format):
    """/v1/completions, where a chunk has the shape of an answer. `echoes` are the prompts to show, by index."""

    prefix = "cmpl"

    def __init__(self, tokenizer: Tokenizer, model: str, logprobs: bool, echoes: Sequence[Echo] = ()) -> None:
        super().__init__(tokenizer, model, logprobs)
        self._echoes = echoes

    def answer(self, choices: Sequence[Piece], usage: Usage) -> Completion:
        return Completion(**self._head, choices=list(starmap(self._choice, enumerate(choices))), usage=usage)

    def chunk(self, index: int, piece: Piece) -> Completion:
        return Completion(**self._head, choices=[self._choice(index, piece)])

    def closing(self, usage: Usage) -> Completion:
        return Completion(**self._head, choices=[], usage=usage)

    def _choice(self, index: int, piece: Piece) -> TextChoice:
        text, logprobs = piece.text, completion_logprobs(piece, self._tokenizer) if self._logprobs else None
        if self._echoes:
            echo = self._echoes[index]
            text = echo.text + text if piece.begins else text
            logprobs = None if logprobs is None else echo.before(piece, logprobs)
        return TextChoice(
            index=index,
            text=text,
            logprobs=logprobs,
            finish_reason=piece.finish_reason,
            token_ids=list(piece.tokens),
            speculation=_counts(piece),
        )


class ChatFormat(Format):
    """/v1/chat/completions."""

    prefix = "chatcmpl"

    def answer(self, choices: Sequence[Piece], usage: Usage) -> ChatCompletion:
        return ChatCompletion(**self._head, choices=list(starmap(self._choice, enumerate(choices))), usage=usage)

    def opening(self, index: int, /) -> ChatCompletionChunk:
        return self._chunk(index, NOTHING, Delta(role="assistant", content=""), None)

    def chunk(self, index: int, piece: Piece) -> ChatCompletionChunk:
        return self._chunk(index, piece, delta_of(piece.delta), self._shown_logprobs(piece))

    def closing(self, usage: Usage) -> ChatCompletionChunk:
        return ChatCompletionChunk(**self._head, choices=[], usage=usage)

    def _choice(self, index: int, piece: Piece) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=message_of(piece.delta),
            logprobs=self._shown_logprobs(piece),
            finish_reason=finish_reason(piece),
            token_ids=list(piece.tokens),
            speculation=_counts(piece),
        )

    def _chunk(self, index: int, piece: Piece, delta: Delta, logprobs: ChatLogprobs | None) -> ChatCompletionChunk:
        choice = ChunkChoice(
            index=index,
            delta=delta,
            logprobs=logprobs,
            finish_reason=finish_reason(piece),
            token_ids=list(piece.tokens),
            speculation=_counts(piece),
        )
        return ChatCompletionChunk(**self._head, choices=[choice])

    def _shown_logprobs(self, piece: Piece) -> ChatLogprobs | None:
        return chat_logprobs(piece, self._tokenizer) if self._logprobs else None


def _counts(piece: Piece) -> ChoiceSpeculation:
    return ChoiceSpeculation(
        proposed=piece.proposed, accepted=piece.accepted, accepted_characters=piece.accepted_characters
    )
