"""One HTTP request while it is answered, and what its line in the log and its span tell of it.

Code that answers a request says what happens to it without knowing which it is: see `happened`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from serve_app.http.batch import Batch
from serve_app.http.output.usage import UsageCount
from serve_app.spans import FIRST_TOKEN, NOTHING, PREFILL, Attributes, Headers, Span

Clock = Callable[[], float]
Facts = dict[str, Any]  # JSON values

_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


class Generated(NamedTuple):
    """What a request asks to generate, and the count of what it has got so far."""

    batch: Batch
    usage: UsageCount
    stream: bool


class Exchange:
    """A request that begins now. `clock` gives seconds."""

    def __init__(self, span: Span = NOTHING, clock: Clock = time.monotonic) -> None:
        self.span = span
        self._clock = clock
        self._began = clock()
        self._first: dict[str, float] = {}  # when each event came first
        self._generated: Generated | None = None
        self._error: str | None = None
        self._seconds = 0.0

    @contextmanager
    def current(self) -> Iterator[None]:
        """Within the block, and in what is started there, this is the request that is answered."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def happens(self, event: str, attributes: Attributes | None) -> None:
        self._first.setdefault(event, self._clock())
        self.span.note_event(event, attributes)

    def generates(self, generated: Generated) -> None:
        self._generated = generated

    def fails(self, error: BaseException) -> None:
        self._error = type(error).__name__

    def end(self, status: int | None) -> float:
        """It ends with this status, None if the client left before there was one. Returns the seconds that it took."""
        self._seconds = self._clock() - self._began
        if self.span is not NOTHING:
            if status is not None:
                self.span.note({"http.response.status_code": status})
            if self._generated is not None:
                self.span.note(_attributes(self._generated))
            if self._error is not None or (status or 0) >= 500:
                self.span.fail(self._error or str(status))
            self.span.end()
        return self._seconds

    def facts(self) -> Facts:
        """What a log of objects tells of it, once it has ended."""
        every = {
            **({} if self._generated is None else _counts(self._generated)),
            "queue_s": self._until(PREFILL),
            "first_token_s": self._until(FIRST_TOKEN),
            "total_s": round(self._seconds, 6),
            "error": self._error,
            "trace_id": self.span.trace_id,
        }
        return {name: value for name, value in every.items() if value is not None}

    def _until(self, event: str) -> float | None:
        return round(self._first[event] - self._began, 6) if event in self._first else None


def happened(event: str, attributes: Attributes | None = None) -> None:
    """Something has happened to the request that this task answers, if it answers one."""
    if (exchange := _current.get()) is not None:
        exchange.happens(event, attributes)


def generating(batch: Batch, usage: UsageCount, *, stream: bool) -> None:
    """The request that this task answers gets an answer to `batch`, counted in `usage`."""
    if (exchange := _current.get()) is not None:
        exchange.generates(Generated(batch, usage, stream))


def failed(error: BaseException) -> None:
    """Its answer ends with an error, which its status may not tell."""
    if (exchange := _current.get()) is not None:
        exchange.fails(error)


def span_headers() -> Headers | None:
    """What a call for that request takes along; None while spans are off."""
    exchange = _current.get()
    return None if exchange is None else exchange.span.headers


def _counts(generated: Generated) -> Facts:
    total = generated.usage.total()
    return {
        "model": generated.batch.model,
        "task": total.speculation.task,
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
        "proposed_tokens": total.speculation.proposed,
        "accepted_tokens": total.speculation.accepted,
    }


def _attributes(generated: Generated) -> Attributes:
    """By OpenTelemetry's conventions for generative AI, and what these have no name for."""
    requests, total = generated.batch.requests, generated.usage.total()
    params = requests[0].params
    return {
        "gen_ai.request.model": generated.batch.model,
        "gen_ai.request.stream": generated.stream,
        "gen_ai.request.choice.count": len(requests),
        "gen_ai.request.seed": params.seed,
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.top_k": params.top_k,
        "gen_ai.request.frequency_penalty": params.frequency_penalty,
        "gen_ai.request.presence_penalty": params.presence_penalty,
        "gen_ai.response.finish_reasons": generated.usage.finish_reasons,
        "gen_ai.usage.input_tokens": total.prompt_tokens,
        "gen_ai.usage.output_tokens": total.completion_tokens,
        "taskspec.task": total.speculation.task,
        "taskspec.proposed_tokens": total.speculation.proposed,
        "taskspec.accepted_tokens": total.speculation.accepted,
        "taskspec.moves": total.speculation.rerouted,
    }
