"""How many sessions run beside one another, of late: a new one will meet about as many, though it comes first.

Enters: their number whenever it changes, and when. Leaves: the most there were, which fades. (Not their mean: where
they come in waves, the first of each would be judged by the lull before it.)
"""

from __future__ import annotations

import math

MEMORY = 2.0  # seconds, after which a third is left of what was; about as long as an answer takes


class Crowd:
    """The number of sessions, and what is left of the most there were."""

    def __init__(self) -> None:
        self._number = 0
        self._most = 0.0
        self._since = 0.0

    def observe(self, number: int, now: float) -> None:
        """From now on there are so many."""
        self._most, self._since, self._number = max(number, self.most(now)), now, number

    def most(self, now: float) -> float:
        """As of now; never less than there are."""
        return max(self._number, self._most * math.exp((self._since - now) / MEMORY))
