"""Whether light drafts prepare while the target computes: found out by having them do so in some passes, not in others.

Where they have cores of their own the next answer is there sooner; where the target computes on all there are, they
take them from it, which they cannot see. Enters: what passes took and were expected to take. Leaves: a yes or no, which
drafts are told with every verdict.
"""

from __future__ import annotations

import math

BLOCK = 16  # passes before the choice is looked at again
LEARNING, EXPLORE = 4, 64  # the first comparisons follow one another; then one block in so many is the other way
SLOWER = 0.02  # by how much passes have to be: with answers that are there sooner more is asked for, which is not seen
_KEEP = 0.8  # of what was compared, per comparison


class Preparing:
    """`on` is the choice as it stands."""

    def __init__(self) -> None:
        self.on = True
        self._passes = self._blocks = self._comparisons = 0
        self._seconds = self._expected = 0.0  # of the block so far
        self._last: tuple[bool, float] | None = None  # the block before: its choice, and log(seconds / expected)
        self._slower, self._weight = 0.0, 0.0  # sum of the comparisons' logs, and what they count for

    def observe(self, seconds: float, expected: float) -> None:
        """From the end of a pass to that of the next, for which drafts were asked, where `expected` is its own time.

        That may be told at any pace as long as it is the same for passes nearby.
        """
        self._passes += 1
        self._seconds += seconds
        self._expected += expected
        if self._passes == BLOCK:
            self._compare(math.log(self._seconds / self._expected))
            self._passes, self._seconds, self._expected = 0, 0.0, 0.0
            self.on = self._choose()

    def _compare(self, pace: float) -> None:
        """With the block before, if that was the other way: machines drift, and crowds come and go."""
        if self._last is not None and self._last[0] != self.on:
            slower = pace - self._last[1] if self.on else self._last[1] - pace
            self._slower = _KEEP * self._slower + slower
            self._weight = _KEEP * self._weight + 1.0
            self._comparisons += 1
        self._last = self.on, pace

    def _choose(self) -> bool:
        self._blocks += 1
        if self._comparisons < LEARNING:
            return not self.on
        best = self._slower <= SLOWER * self._weight
        return best != (self._blocks % EXPLORE == 0)
