"""Sends the answer to a batch: as a whole, or as a stream of server-sent events while it is generated.

A client that stops reading ends the generation: each generator here closes the one it reads from. A stream that has
nothing to say for a while says so, as proxies and balancers close connections that are silent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import count
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from serve_app.http.batch import Batch
from serve_app.http.disconnect import cancelled, unless_disconnected
from serve_app.http.errors import place_of
from serve_app.http.exchange import failed, generating
from serve_app.http.merged_runs import merged_runs
from serve_app.http.output.choices import Choice, Piece, join
from serve_app.http.output.continuation import beginning
from serve_app.http.output.usage import UsageCount
from serve_app.http.service import Service
from serve_app.http.writer import AnswerWriter

Pieces = AsyncGenerator[tuple[int, Piece], None]  # index of the choice in the answer, its next piece

logger = logging.getLogger(__name__)

SILENCE = 10.0  # seconds after which a stream gets a comment, which clients skip
COMMENT = b": waiting\n\n"
INLINE_LOGPROBS = 16  # tokens, the most a run holds; with 20 alternatives each they take 3 ms of the event loop


async def respond(request: Request, batch: Batch, service: Service, writer: AnswerWriter, *, stream: bool) -> Response:
    """The answer to `batch`, whole or as a stream."""
    usage = UsageCount(batch.prompt_tokens, predicted=batch.predicted)
    generating(batch, usage, stream=stream)
    if stream:
        return await _streamed(request, batch, service, writer, usage)
    choices = await unless_disconnected(request.receive, _collect(batch, service, usage))
    body = await _written(lambda: writer.whole(choices, usage.total()).model_dump_json().encode(), choices)
    return Response(body, media_type="application/json")


async def _streamed(
    request: Request, batch: Batch, service: Service, writer: AnswerWriter, usage: UsageCount
) -> Response:
    """A failure before the first piece is raised, so that it has its own HTTP status."""
    pieces = _pieces(batch, service, usage)
    try:
        first = await unless_disconnected(request.receive, anext(pieces))
    except BaseException:
        await pieces.aclose()
        raise
    return EventStream(_events(first, pieces, writer, usage), pieces)


class EventStream(StreamingResponse):
    """Server-sent events that end as soon as the client disconnects, not at the next event; `COMMENT`s in silences."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], source: AsyncGenerator[Any, None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-cache"})
        self._events = events
        self._source = source

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        # The source is closed as well: a generator that was never started does not run its own clean-up.
        async with aclosing(self._source), aclosing(self._events):
            with suppress(ClientDisconnect, OSError):  # servers raise OSError from send once the connection is closed
                await unless_disconnected(receive, self._with_comments(send))

    async def _with_comments(self, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        sent_at = clock()

        async def send_noted(message: Message) -> None:
            nonlocal sent_at
            if message.get("body") or message["type"] == "http.response.start":
                sent_at = clock()
            await send(message)

        async def comment() -> None:
            while True:
                await asyncio.sleep(sent_at + SILENCE - clock())
                if clock() >= sent_at + SILENCE:
                    await send_noted({"type": "http.response.body", "body": COMMENT, "more_body": True})

        commenting = asyncio.create_task(comment())
        try:
            await super().stream_response(send_noted)
        finally:
            await cancelled(commenting)


async def _collect(batch: Batch, service: Service, usage: UsageCount) -> list[Piece]:
    choices: list[list[Piece]] = [[] for _ in batch.requests]
    async with aclosing(_pieces(batch, service, usage)) as pieces:
        async for index, piece in pieces:
            choices[index].append(piece)
    return [join(pieces_of_choice) for pieces_of_choice in choices]


async def _pieces(batch: Batch, service: Service, usage: UsageCount) -> Pieces:
    choices = [
        Choice(service.tokenizer.raw, batch.ending, request.params.logprobs is not None, batch.parsing)
        for request in batch.requests
    ]
    readers = [beginning(batch.received, choice) for choice in choices]
    passes = [count() for _ in choices]
    async with aclosing(merged_runs(batch, service)) as runs:
        async for run in runs:
            usage.add(run)
            number, piece = next(passes[run.choice]), readers[run.choice].push(run.run)
            if piece is not None:
                yield run.choice, replace(piece, task=run.task, number=number)
    if not all(choice.finished for choice in choices):
        raise RuntimeError("the service ended a generation without a finish reason")


async def _events(
    first: tuple[int, Piece], rest: Pieces, writer: AnswerWriter, usage: UsageCount
) -> AsyncGenerator[bytes, None]:
    async def written(index: int, piece: Piece) -> bytes:
        opening = writer.opening(index) if piece.begins else b""
        return opening + await _written(lambda: writer.piece(index, piece, usage.total), [piece])

    yield await written(*first)
    try:
        async with aclosing(rest):
            async for index, piece in rest:
                yield await written(index, piece)
    except Exception as error:  # noqa: BLE001 - of any kind: the status is already sent, so the error must be an event
        logger.error("a generation failed after its first tokens were sent: %s", place_of(error))
        failed(error)
        yield writer.failure(error)
        return
    yield writer.closing(usage.total())


async def _written(write: Callable[[], bytes], pieces: Sequence[Piece]) -> bytes:
    """The result of `write`, which runs in a thread if there are many logprobs, so that other streams need not wait."""
    if sum(len(piece.logprobs) + len(piece.prompt_logprobs) for piece in pieces) <= INLINE_LOGPROBS:
        return write()
    return await run_in_threadpool(write)
