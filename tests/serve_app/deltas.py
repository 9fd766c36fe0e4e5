"""Answers of a model with reasoning and tool calls, as deltas, and a server that sends what was written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence

import httpx2
from hypothesis import strategies as st

from core.parsing.answer import AnswerDelta, CallDelta
from serve_app.openai.choices import Piece
from serve_app.openai.events import Events
from serve_app.openai.responses import SpeculationUsage, Usage

USAGE = Usage(
    prompt_tokens=5,
    completion_tokens=9,
    total_tokens=14,
    speculation=SpeculationUsage(
        task="math",
        rerouted=0,
        rerouted_from=[],
        proposed=0,
        accepted=0,
        acceptance_rate=None,
        tokens_per_target_pass=None,
        sources={},
    ),
)
ARGUMENTS = ('{"city": "Oslo"}', '{"city": "Rome", "days": [1, 2]}')
ANSWER = [
    AnswerDelta(reasoning="Two places, "),
    AnswerDelta(reasoning="two calls.", content="I look "),
    AnswerDelta(content="it up.", calls=(CallDelta(0, "weather", '{"city": '),)),
    AnswerDelta(calls=(CallDelta(0, None, '"Oslo"}'), CallDelta(1, "forecast", ""))),
    AnswerDelta(calls=(CallDelta(1, None, '{"city": "Rome", "days": [1, 2]}'),)),
]
AFTERWARDS = [  # text behind a call, in the same piece as the end of the call
    AnswerDelta(calls=(CallDelta(0, "weather", '{"city": '),)),
    AnswerDelta(content="Now Rome.", calls=(CallDelta(0, None, '"Oslo"}'), CallDelta(1, "weather", '{"city"'))),
    AnswerDelta(content="Done.", calls=(CallDelta(1, None, ': "Rome"}'),)),
]


def pieces(deltas: Sequence[AnswerDelta], finish_reason: str = "stop") -> list[Piece]:
    """The pieces of one choice, the last of which ends it."""
    last = len(deltas) - 1
    return [
        Piece("", (1,), (), (), 0, 0, finish_reason if number == last else None, 0, delta)  # type: ignore[arg-type]
        for number, delta in enumerate(deltas)
    ]


def written(events: Events, deltas: Sequence[AnswerDelta], finish_reason: str = "stop") -> bytes:
    """The whole stream of one answer."""
    body = events.opening(0)
    for piece in pieces(deltas, finish_reason):
        body += events.piece(0, piece, lambda: USAGE)
    return body + events.closing(USAGE)


def sender(body: bytes, cut: int = 7) -> httpx2.AsyncClient:
    """A client of a server that answers everything with the stream `body`, `cut` bytes at a time."""

    async def sent() -> AsyncGenerator[bytes, None]:
        for begin in range(0, len(body), cut):
            yield body[begin : begin + cut]

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=sent())

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


Draw = Callable[[st.SearchStrategy[int]], int]


@st.composite
def cuts(draw: Draw) -> list[AnswerDelta]:
    """`ANSWER`, cut elsewhere: reasoning, content and arguments into parts of any length."""
    steps = [AnswerDelta(reasoning=part) for part in _parts(draw, "Two places, two calls.")]
    steps += [AnswerDelta(content=part) for part in _parts(draw, "I look it up.")]
    for index, (name, arguments) in enumerate(zip(("weather", "forecast"), ARGUMENTS, strict=True)):
        parts = _parts(draw, arguments)
        steps += [
            AnswerDelta(calls=(CallDelta(index, name if number == 0 else None, part),))
            for number, part in enumerate(parts)
        ]
    return steps


def _parts(draw: Draw, text: str) -> list[str]:
    parts = []
    while text:
        length = draw(st.integers(1, len(text)))
        parts.append(text[:length])
        text = text[length:]
    return parts
