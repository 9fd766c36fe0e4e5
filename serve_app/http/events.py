"""Server-sent events: what one stream is made of, whatever its protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from pydantic import BaseModel

from serve_app.http.output.choices import Piece
from serve_app.http.output.usage import Usage


class Events(ABC):
    """Writes the events of one stream; what a method returns is any number of them."""

    def opening(self, _index: int, /) -> bytes:
        """What comes before the first piece of the choice `index`."""
        return b""

    @abstractmethod
    def piece(self, index: int, piece: Piece, sofar: Callable[[], Usage]) -> bytes:
        """A piece of the choice `index`; `sofar` counts all choices up to this one."""

    @abstractmethod
    def failure(self, error: Exception) -> bytes:
        """The end of a stream whose generation failed; its HTTP status is already sent."""

    @abstractmethod
    def closing(self, usage: Usage) -> bytes:
        """The end of a stream whose choices have all finished."""


def event(body: BaseModel, name: str | None = None) -> bytes:
    """One event with `body` as its data."""
    data = event_data(body.model_dump_json().encode())
    return data if name is None else f"event: {name}\n".encode() + data


def event_data(line: bytes) -> bytes:
    """One event without a name."""
    return b"data: " + line + b"\n\n"
