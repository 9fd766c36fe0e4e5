"""When the chunks of a stream leave: each run as it comes, or what has gathered at ticks that tell nothing of the runs.

Pieces of a stream enter as they are committed, pieces leave. Encryption hides what a chunk says, not when it leaves
and how large it is. A chunk per run shows how many tokens each pass committed, that is how well the draft guessed, and
from that a listener can tell which of some known prompts was asked (arXiv 2411.01076). At ticks it learns when the
first token was there, and of the rest only the rate; sizes still tell how much text an interval brought.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from serve_app.openai.choices import NOTHING, Piece, join
from serve_app.openai.disconnect import end

Pieces = AsyncGenerator[tuple[int, Piece], None]


class Cadence:
    """Ticks every `interval_s` seconds; 0 stands for no ticks at all, everything leaves at once."""

    def __init__(
        self,
        interval_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.interval_s = interval_s
        self._clock = clock
        self._sleep = sleep

    async def ticks(self) -> AsyncGenerator[None, None]:
        """One at every whole interval from now on; those that a slow reader has missed are left out."""
        began, number = self._clock(), 0
        while True:
            number = max(number, math.floor((self._clock() - began) / self.interval_s)) + 1
            await self._sleep(began + number * self.interval_s - self._clock())
            yield


AT_ONCE = Cadence()


async def paced(first: tuple[int, Piece], rest: Pieces, cadence: Cadence) -> Pieces:
    """What follows `first`, which leaves at once: it comes out of the prefill, before any draft has guessed.

    At each tick every choice that has begun sends one piece: all of its runs since the last one, joined, or an empty
    piece where there were none. A comment would do to keep a connection alive, but nothing else is as short: whoever
    listens would know the ticks without a token, which an empty chunk, of much the same size as one with a word,
    does not show. The end of a choice, a failure and the end of the stream come at the next tick too.
    """
    gathered = _Gathered(first)
    gathering = asyncio.create_task(gathered.fill(rest))
    try:
        async with aclosing(cadence.ticks()) as ticks:
            async for _ in ticks:
                over = gathering.done()
                for index, piece in gathered.take():
                    yield index, piece
                if over:
                    await gathering  # raises what went wrong, if anything did
                    return
    finally:
        await end(gathering)


class _Gathered:
    """The pieces of each choice since the last tick."""

    def __init__(self, first: tuple[int, Piece]) -> None:
        self._unfinished: set[int] = set()
        self._pieces: dict[int, list[Piece]] = {}
        self._note(*first)

    async def fill(self, pieces: Pieces) -> None:
        async for index, piece in pieces:
            self._note(index, piece)
            self._pieces.setdefault(index, []).append(piece)

    def take(self) -> list[tuple[int, Piece]]:
        """One piece of each choice that has any, or that is still to have some."""
        pieces, self._pieces = self._pieces, {}
        return [(index, join(pieces.get(index, [NOTHING]))) for index in sorted(self._unfinished | pieces.keys())]

    def _note(self, index: int, piece: Piece) -> None:
        if piece.finish_reason is None:
            self._unfinished.add(index)
        else:
            self._unfinished.discard(index)
