"""The tokens of an answer in time: their number, and the times between them.

All tokens of a chunk have the time of its arrival.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

from serve_app.client import Answer

Counted = Literal["token ids", "usage", "chunks"]  # the source of the number of tokens


class Times:
    """The times of one answer to a question due_at at `due_at`; seconds on the client's clock."""

    def __init__(self, answer: Answer, due_at: float) -> None:
        self.counted_by, self.tokens = counted(answer)
        self.gaps = [after - before for before, after in zip(answer.arrivals, answer.arrivals[1:], strict=False)]
        self._answer = answer
        self._due_at = due_at

    @property
    def ttft(self) -> float | None:
        """Time to the first token; None for an empty answer."""
        return self._answer.arrivals[0] - self._due_at if self._answer.arrivals else None

    @property
    def end(self) -> float:
        """The arrival of the last token; `due_at` for an empty answer."""
        return self._answer.arrivals[-1] if self._answer.arrivals else self._due_at

    @property
    def after_first_chunk(self) -> tuple[float, float]:
        """Tokens and seconds after the first chunk."""
        return self.tokens - self._first, sum(self.gaps)

    @property
    def per_token(self) -> float | None:
        """Seconds per token after the first chunk; None for an answer of one chunk."""
        tokens, seconds = self.after_first_chunk
        return seconds / tokens if tokens > 0 and seconds > 0 else None

    @property
    def token_gaps(self) -> list[float]:
        """Time from each token to the next; 0 within a chunk."""
        return [*self.gaps, *[0.0] * (self.tokens - 1 - len(self.gaps))]

    def tokens_until(self, moment: float) -> float:
        """Tokens that arrived until `moment`; spread evenly over chunks whose tokens the server does not report."""
        chunks = bisect_right(self._answer.arrivals, moment)
        if self.counted_by == "token ids":
            return sum(self._answer.runs[:chunks])
        return self.tokens * chunks / len(self._answer.arrivals) if chunks else 0.0

    @property
    def _first(self) -> int:
        """Tokens of the first chunk; one, from the prefill, if the server does not report them."""
        return sum(self._answer.runs[:1]) if self.counted_by == "token ids" else min(self.tokens, 1)


def counted(answer: Answer) -> tuple[Counted, int]:
    """The number of tokens: by their ids, else by the server's `usage`, else one per chunk."""
    if answer.tokens:
        return "token ids", len(answer.tokens)
    if isinstance(used := answer.usage.get("completion_tokens"), int):
        return "usage", used
    return "chunks", len(answer.arrivals)
