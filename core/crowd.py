"""How many sessions there are at a time, of late: a new one will run beside about as many, though it comes first.

Enters: their number whenever it changes, and when. Leaves: a mean in which the past fades.
"""

from __future__ import annotations

import math

MEMORY = 2.0  # seconds, after which a third is left of what was; about as long as an answer takes


class Crowd:
    """The number of sessions, and its mean over time."""

    def __init__(self) -> None:
        self._number = 0
        self._mean = 0.0
        self._since = 0.0

    def observe(self, number: int, now: float) -> None:
        """From now on there are so many."""
        self._mean, self._since, self._number = self.mean(now), now, number

    def mean(self, now: float) -> float:
        """As of now."""
        return self._number + (self._mean - self._number) * math.exp((self._since - now) / MEMORY)
