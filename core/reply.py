"""How long a draft takes to answer: a part that every answer takes and a part per token, estimated as answers come.

Enters: seconds from telling a draft what is committed to its proposal, and how many tokens that held. Leaves: the
seconds to expect for a number of tokens, and when even a slow answer should be there.
"""

from __future__ import annotations

from core.step_costs import Smoothed

MEMORY, LONG_MEMORY = 16.0, 64.0  # answers that an estimate effectively remembers, and that the slowest one outlives

TRIP = 0.0005  # seconds, before one was measured
EARLIER = 2.0  # answers, that all those to earlier sessions count as: the load may have been another
SPREAD = 0.1  # tokens^2, between lengths that tell what a token costs: one of 3 among fifteen of 1 does


class Reply:
    """Running least squares of seconds over tokens for one draft process; `known` once it has answered.

    While all answers had about one length, a token takes what it took when they had not, or else the fixed part is
    taken to be worth one. Until one was timed it is `guessed` to be half of what the quickest took at most. Answers
    that were foreseen take no time: they make the mean smaller, and tell nothing of those that are waited for.
    """

    def __init__(self) -> None:
        self.trip = Smoothed(TRIP)  # what an answer takes beyond what its draft says that it took
        self._begin()

    def _begin(self) -> None:
        self.known = self.guessed = False
        self.deviation = 0.0
        self._slowest = 0.0
        self._unforeseen = 1.0  # share of the answers
        self._slope: float | None = None  # seconds of a token, when answers last told
        self._sums = [0.0] * 5  # of 1, tokens, seconds, tokens^2, tokens * seconds

    def observe(self, tokens: int, seconds: float) -> None:
        if self.guessed or (self._sums[0] == 1.0 and 2 * seconds < self.unforeseen(tokens)):
            self._begin()  # one answer says little, and a draft that once seemed slow is hardly asked for another
        error = abs(seconds - self.unforeseen(tokens)) if self.known else seconds / 2
        self.deviation += (error - self.deviation) / (4 if self.known else 1)
        self._slowest = max(seconds, self._slowest * (1.0 - 1.0 / LONG_MEMORY))
        self._add(tokens, seconds)
        self._unforeseen += (1.0 - self._unforeseen) / MEMORY
        self.known = True

    def observe_foreseen(self) -> None:
        """An answer that was there before it was asked for."""
        if self._sums[0] > 1.0 and not self.guessed:
            self.deviation -= self.deviation / 4  # or one that dies would hold up a pass for longer
            self._unforeseen -= self._unforeseen / MEMORY

    def _add(self, tokens: int, seconds: float) -> None:
        keep = 1.0 - 1.0 / MEMORY
        new = (1.0, tokens, seconds, tokens * tokens, tokens * seconds)
        self._sums = [keep * old + term for old, term in zip(self._sums, new, strict=True)]
        weight, length, total, squares, products = self._sums
        spread = squares / weight - (length / weight) ** 2
        if spread > SPREAD:
            self._slope = max(0.0, (products - length * total / weight) / (weight * spread))

    def observe_at_most(self, tokens: int, seconds: float) -> None:
        """An answer that came some time within so many seconds."""
        if not self.known or (self.guessed and seconds / 2 < self.unforeseen(tokens)):
            self._begin()
            self.observe(tokens, seconds / 2)
            self.guessed = True
        elif not self.guessed and seconds < self.unforeseen(tokens):
            self.observe(tokens, seconds)

    def begin_session(self) -> None:
        """Answers from now on are to another session."""
        less = min(1.0, EARLIER / self._sums[0]) if self.known else 1.0
        self._sums = [less * term for term in self._sums]

    def mean(self, tokens: float) -> float:
        """Seconds to expect for a proposal of so many tokens that is yet to be asked for; 0 before any answer."""
        return self._unforeseen * self.unforeseen(tokens)

    def unforeseen(self, tokens: float) -> float:
        """Seconds to expect where it was not there when it was asked for; 0 before any answer."""
        if not self.known:
            return 0.0
        weight, length, seconds, _, _ = self._sums
        return seconds / weight + self._each * (tokens - length / weight)

    @property
    def each(self) -> float:
        """Seconds of a token that is yet to be asked for; 0 before any answer."""
        return self._unforeseen * self._each if self.known else 0.0

    @property
    def _each(self) -> float:
        weight, length, seconds, _, _ = self._sums
        return seconds / (length + weight) if self._slope is None else min(self._slope, seconds / max(length, weight))

    def latest(self, tokens: float) -> float:
        """When even a slow answer should be there."""
        return max(self.unforeseen(tokens), self._slowest) + 4 * self.deviation
