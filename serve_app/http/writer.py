"""What a protocol writes: the answer to one request, as a whole or as the server-sent events of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from pydantic import BaseModel

from serve_app.http.output.choices import Piece
from serve_app.http.output.usage import Usage


class AnswerWriter(ABC):
    """Writes one answer; what a method about a stream returns is any number of events."""

    @abstractmethod
    def whole(self, choices: Sequence[Piece], usage: Usage) -> BaseModel:
        """The complete answer, with `choices` in the order of their indices."""

    def opening(self, _index: int, /) -> bytes:
        """What comes before the first piece of the choice `index`."""
        return b""

    @abstractmethod
    def piece(self, index: int, piece: Piece, usage: Callable[[], Usage]) -> bytes:
        """A piece of the choice `index`; `usage` counts all choices up to this one."""

    @abstractmethod
    def failure(self, error: Exception) -> bytes:
        """The end of a stream whose generation failed; its HTTP status is already sent."""

    @abstractmethod
    def closing(self, usage: Usage) -> bytes:
        """The end of a stream whose choices have all finished."""


def event(body: BaseModel, name: str | None = None) -> bytes:
    """One server-sent event with `body` as its data."""
    data = event_data(body.model_dump_json().encode())
    return data if name is None else f"event: {name}\n".encode() + data


def event_data(line: bytes) -> bytes:
    """One event without a name."""
    return b"data: " + line + b"\n\n"
