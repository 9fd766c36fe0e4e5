"""Server-sent events: what one stream is made of, in OpenAI's chunks or in another protocol's events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec
from pydantic import BaseModel

from serve_app.openai.choices import Piece
from serve_app.openai.errors import describe
from serve_app.openai.response_building import Format
from serve_app.openai.responses import Usage


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


class Chunks(Events):
    """The events of /v1/completions and /v1/chat/completions: nameless chunks, and "[DONE]".

    With `include_usage` the last chunk has the usage; with `continuous_usage` every chunk has it, as it is by then.
    """

    def __init__(self, form: Format, *, include_usage: bool = False, continuous_usage: bool = False) -> None:
        self._form = form
        self._include_usage = include_usage
        self._continuous_usage = continuous_usage

    def opening(self, index: int, /) -> bytes:
        chunk = self._form.opening(index)
        return event(chunk) if chunk else b""

    def piece(self, index: int, piece: Piece, sofar: Callable[[], Usage]) -> bytes:
        chunk = self._form.chunk(index, piece)
        return event(chunk.model_copy(update={"usage": sofar()}) if self._continuous_usage else chunk)

    def failure(self, error: Exception) -> bytes:
        return _data(msgspec.json.encode(describe(error)[2]))

    def closing(self, usage: Usage) -> bytes:
        return (event(self._form.closing(usage)) if self._include_usage else b"") + _data(b"[DONE]")


def event(body: BaseModel, name: str | None = None) -> bytes:
    """One event with `body` as its data."""
    data = _data(body.model_dump_json().encode())
    return data if name is None else f"event: {name}\n".encode() + data


def _data(line: bytes) -> bytes:
    return b"data: " + line + b"\n\n"
