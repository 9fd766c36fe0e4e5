"""How many tokens to ask of a draft: as many as give the highest rate of committed tokens, 0 among the answers.

Enters: what a proposal of every length is expected to bring and how long it takes, what the rest of the pass holds,
measured step costs. Leaves: a length. Rate is goodput over the whole batch: a row that helps one session makes the pass
longer for all (design 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.reply import Reply
from core.step_rule import StepCosts

FIRST_PAUSE, LONGEST_PAUSE = 16, 128  # passes between two looks at a draft that does not pay


class Others(NamedTuple):
    """What the other sessions bring to a pass: expected tokens, rows, and the seconds it waits for them anyway."""

    tokens: float = 0.0
    rows: int = 0
    wait: float = 0.0


def best_length(expected: Sequence[float], reply: Reply, others: Others, costs: StepCosts) -> int:
    """The best of the lengths 0 .. len(expected) - 1; `expected[k]` is E(k), the tokens that a pass commits with k.

    Before a pass has been measured every row seems free, and so does waiting before the draft has answered.
    """
    best, best_rate = 0, 0.0
    for length, tokens in enumerate(expected):
        wait = max(others.wait, reply.mean(length)) if length else others.wait
        seconds = wait + costs.seconds(others.rows + 1 + length)
        if seconds <= 0.0:
            return len(expected) - 1
        rate = (others.tokens + tokens) / seconds
        if rate > best_rate:
            best, best_rate = length, rate
    return best


class Probe:
    """A draft that does not pay is asked for one token now and then, to see whether it does now.

    Ever more rarely while it guesses wrong, at every pass while it guesses right.
    """

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE
        self._since = 0

    def right(self) -> None:
        """A proposal was accepted."""
        self._pause = 1

    def length(self, best: int) -> int:
        """What to ask for where `best` is the best length; called once per pass."""
        self._since += 1
        if best > 0:
            return best
        if self._since < self._pause:
            return 0
        self._pause, self._since = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE), 0
        return 1
