"""One answer as tokens in time.

Enters: an answer with its chunks' arrivals. Leaves: how many tokens it has and by what that is known, and the times
between them. A token's time is the arrival of its chunk: a chunk of n tokens is n tokens at one time.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

from serve_app.chat_client import Answer

Counted = Literal["token ids", "usage", "chunks"]  # how a server lets its tokens be counted


class Times:
    """`due` is when the question was to be sent; all on the client's clock, in seconds."""

    def __init__(self, answer: Answer, due: float) -> None:
        self.counted_by, self.tokens = counted(answer)
        self.gaps = [after - before for before, after in zip(answer.arrivals, answer.arrivals[1:], strict=False)]
        self._answer = answer
        self._due = due

    @property
    def ttft(self) -> float | None:
        """Until the first token; None for an answer of none."""
        return self._answer.arrivals[0] - self._due if self._answer.arrivals else None

    @property
    def end(self) -> float:
        """When the last token came, or else when it was due."""
        return self._answer.arrivals[-1] if self._answer.arrivals else self._due

    @property
    def after_first_chunk(self) -> tuple[float, float]:
        """Tokens, and seconds."""
        return self.tokens - self._first, sum(self.gaps)

    @property
    def per_token(self) -> float | None:
        """Seconds per token after the first chunk; None for an answer of one chunk."""
        tokens, seconds = self.after_first_chunk
        return seconds / tokens if tokens > 0 and seconds > 0 else None

    @property
    def token_gaps(self) -> list[float]:
        """Time from each token to the next: a chunk's, then 0 within it."""
        return [*self.gaps, *[0.0] * (self.tokens - 1 - len(self.gaps))]

    def tokens_until(self, moment: float) -> float:
        """Tokens that had arrived; where nobody tells what is in a chunk, they are spread evenly."""
        chunks = bisect_right(self._answer.arrivals, moment)
        if self.counted_by == "token ids":
            return sum(self._answer.runs[:chunks])
        return self.tokens * chunks / len(self._answer.arrivals) if chunks else 0.0

    @property
    def _first(self) -> int:
        """Tokens of the first chunk; where nobody tells, one: it comes out of the prefill."""
        return sum(self._answer.runs[:1]) if self.counted_by == "token ids" else min(self.tokens, 1)


def counted(answer: Answer) -> tuple[Counted, int]:
    """By its ids, by what the server says it used, or, failing both, a token per chunk."""
    if answer.tokens:
        return "token ids", len(answer.tokens)
    if isinstance(used := answer.usage.get("completion_tokens"), int):
        return "usage", used
    return "chunks", len(answer.arrivals)
