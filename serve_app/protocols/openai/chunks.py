"""The stream of OpenAI's two endpoints: chunks without names, and "[DONE]"."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from serve_app.http.errors import describe
from serve_app.http.events import Events, event, event_data
from serve_app.http.output.choices import Piece
from serve_app.http.output.usage import Usage
from serve_app.protocols.openai.response_building import Format


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
        return event_data(msgspec.json.encode(describe(error)[2]))

    def closing(self, usage: Usage) -> bytes:
        return (event(self._form.closing(usage)) if self._include_usage else b"") + event_data(b"[DONE]")
