"""The writer of protocols whose answer is one list of items: reasoning, text and calls, one after another.

A piece of an answer says what is new. Here it becomes items that begin, grow and end, and a protocol has an event for
each of these steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from pydantic import BaseModel

from core.text.tokenizer import Tokenizer
from core.tools.answer import CallPart, ContentPart, ReasoningPart
from serve_app.http.output.choices import Piece
from serve_app.http.output.usage import Usage
from serve_app.http.writer import AnswerWriter, event

AnswerPart = ReasoningPart | ContentPart | CallPart


class NamedEvent(BaseModel):
    """A server-sent event whose name is its type."""

    type: str


NamedEvents = Iterator[NamedEvent]


class SingleAnswerWriter(AnswerWriter):
    """Writes the answer of one choice. An event shows items as they are by then, so each is written before the next."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._reasoning_tokens = 0
        self._open: tuple[type[AnswerPart], int | None] | None = None  # what the last item is of, and a call's index

    def whole(self, choices: Sequence[Piece], usage: Usage) -> BaseModel:
        deque(self._steps(choices[0]), maxlen=0)
        return self._body(usage)

    def piece(self, _index: int, piece: Piece, _usage: Callable[[], Usage]) -> bytes:
        return b"".join(map(written, self._steps(piece)))

    def _steps(self, piece: Piece) -> NamedEvents:
        if piece.delta.reasoning:
            self._reasoning_tokens += len(self._tokenizer.encode_answer(piece.delta.reasoning))
        for part in piece.delta.parts:
            item = type(part), part.index if isinstance(part, CallPart) else None
            if item != self._open:
                if self._open is not None:
                    yield from self._end_item()
                self._open = item
                yield from self._begin_item(part)
            yield from self._grow_item(part)
        if piece.finish_reason is not None:
            yield from self._finish(piece)

    @abstractmethod
    def _body(self, usage: Usage) -> BaseModel:
        """The whole answer, once it has finished."""

    @abstractmethod
    def _begin_item(self, part: AnswerPart) -> NamedEvents:
        """Add the item that begins with `part`, still empty."""

    @abstractmethod
    def _grow_item(self, part: AnswerPart) -> NamedEvents:
        """Add `part` to the last item."""

    @abstractmethod
    def _end_item(self) -> NamedEvents:
        """The last item is whole, and another one follows."""

    @abstractmethod
    def _finish(self, last: Piece) -> NamedEvents:
        """The answer ends, and with it its last item, if there is one."""


def written(body: NamedEvent) -> bytes:
    return event(body, body.type)
