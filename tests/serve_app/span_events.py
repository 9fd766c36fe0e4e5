"""A span that keeps its events, and hands on headers that a test knows."""

from __future__ import annotations

from serve_app.spans import Attributes, Headers, Span

HANDED = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


class KeptSpan(Span):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, Attributes]] = []

    @property
    def headers(self) -> Headers:
        return HANDED

    def note_event(self, name: str, attributes: Attributes | None = None) -> None:
        self.events.append((name, attributes or {}))
