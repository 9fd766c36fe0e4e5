"""Answers of a model with reasoning and tool calls, as deltas, and a server that sends what was written."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from itertools import pairwise
from typing import Any

import httpx2
from hypothesis import strategies as st
from pydantic import TypeAdapter

from core.tools.answer import AnswerDelta, CallPart, CallsState, ContentPart, ReasoningPart, joined
from core.tools.answer_stream import AnswerStream
from core.tools.formats import FORMATS
from core.tools.reasoning import Reasoning
from serve_app.http.output.choices import Piece
from serve_app.http.output.usage import SpeculationUsage, Usage
from serve_app.http.writer import AnswerWriter

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
    AnswerDelta((ReasoningPart("Two places, "),)),
    AnswerDelta((ReasoningPart("two calls."), ContentPart("I look "))),
    AnswerDelta((ContentPart("it up."), CallPart(0, "weather", '{"city": '))),
    AnswerDelta((CallPart(0, None, '"Oslo"}'), CallPart(1, "forecast", ""))),
    AnswerDelta((CallPart(1, None, '{"city": "Rome", "days": [1, 2]}'),)),
]
_CALLS = [
    f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
    for name, arguments in zip(("weather", "forecast"), ARGUMENTS, strict=True)
]
WRITTEN = f"<think>\nTwo places, two calls.\n</think>\n\nI look it up.{''.join(_CALLS)}"
INTERLEAVED = f"<think>\nHm.\n</think>First.{_CALLS[0]}Then <b>.\n{_CALLS[1]}{_CALLS[0]} <tool_call>Done."


def pieces(deltas: Sequence[AnswerDelta], finish_reason: str = "stop") -> list[Piece]:
    """The pieces of one choice, the last of which ends it; a limit ends it in its last call, if it has any."""
    last = len(deltas) - 1
    calls: CallsState = "none" if not joined(deltas).calls else "cut" if finish_reason == "length" else "whole"
    return [
        Piece("", (1,), (), (), 0, 0, finish_reason if number == last else None, 0, delta, calls)  # type: ignore[arg-type]
        for number, delta in enumerate(deltas)
    ]


def written(writer: AnswerWriter, deltas: Sequence[AnswerDelta], finish_reason: str = "stop") -> bytes:
    """The whole stream of one answer."""
    body = writer.opening(0)
    for piece in pieces(deltas, finish_reason):
        body += writer.piece(0, piece, lambda: USAGE)
    return body + writer.closing(USAGE)


def named_events(body: bytes, types: TypeAdapter[Any]) -> list[Any]:
    """The events of a stream, each as the client's strict types have it; its name is its type."""
    blocks = [block.split("\n") for block in body.decode().split("\n\n") if block]
    for name, data in blocks:
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"
    return [types.validate_json(data.removeprefix("data: ")) for _, data in blocks]


def sender(body: bytes, cut: int = 7) -> httpx2.AsyncClient:
    """A client of a server that answers everything with the stream `body`, `cut` bytes at a time."""

    async def sent() -> AsyncGenerator[bytes, None]:
        for begin in range(0, len(body), cut):
            yield body[begin : begin + cut]

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=sent())

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def read(text: str, ends: Iterable[int] = ()) -> list[AnswerDelta]:
    """The deltas of an answer, cut at `ends`, by a model that thinks and calls the tools of these tests."""
    answer = AnswerStream(FORMATS["hermes"], ("weather", "forecast"), Reasoning("<think>", "</think>"))
    bounds = sorted({0, *ends, len(text)})
    return [*(answer.push(text[begin:end]) for begin, end in pairwise(bounds)), answer.finish()]


def cuts(text: str) -> st.SearchStrategy[list[AnswerDelta]]:
    """`text` cut anywhere, and at every character."""
    anywhere = st.sets(st.integers(0, len(text)), max_size=12) | st.just(set(range(len(text))))
    return anywhere.map(lambda ends: read(text, ends))
