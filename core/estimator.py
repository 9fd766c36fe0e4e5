"""How far a draft's proposals reach and are accepted: one estimate per adapter and position, read by all who ask.

Enters: one observation per pass that a draft had answered for. Leaves: what a pass is expected to commit, and its rows.
"""

from __future__ import annotations

from typing import NamedTuple

MEMORY = 200.0  # passes an estimate effectively remembers
PRIOR_ACCEPTANCE = 0.7  # of each token, if those before it were accepted
PRIOR_WEIGHT = 2.0  # passes the prior is worth


class Expected(NamedTuple):
    """What a draft brings to a pass: the tokens it commits, one of them the target's own, and the tokens proposed."""

    tokens: float
    proposed: float


class Position:
    """Of the passes that asked for so many tokens: how many proposals had them, and had them accepted; decayed."""

    def __init__(self, number: int) -> None:
        self._asked = self._proposed = PRIOR_WEIGHT
        self._accepted = PRIOR_WEIGHT * PRIOR_ACCEPTANCE**number

    def observe(self, *, proposed: bool, accepted: bool) -> None:
        keep = 1.0 - 1.0 / MEMORY
        self._asked = self._asked * keep + 1.0
        self._proposed = self._proposed * keep + proposed
        self._accepted = self._accepted * keep + accepted

    @property
    def proposed(self) -> float:
        return self._proposed / self._asked

    @property
    def accepted(self) -> float:
        return self._accepted / self._asked


class Acceptance:
    """The positions of one adapter's proposals."""

    def __init__(self) -> None:
        self._positions: list[Position] = []
        self._expected = [Expected(1.0, 0.0)]  # since the last observation: every session asks, at every pass

    def observe(self, asked: int, proposed: int, accepted: int) -> None:
        """A pass whose draft was asked for so many tokens, proposed no more of them, and had so many accepted."""
        for index, position in enumerate(self._up_to(asked)):
            position.observe(proposed=index < proposed, accepted=index < accepted)
        del self._expected[1:]

    def expected(self, most: int) -> list[Expected]:
        """Of a pass that asks for 0 .. `most` tokens."""
        for position in self._up_to(most)[len(self._expected) - 1 :]:
            tokens, proposed = self._expected[-1]
            self._expected.append(Expected(tokens + position.accepted, proposed + position.proposed))
        return self._expected[: most + 1]

    def tokens(self, proposed: int) -> float:
        """Expected of a pass with a proposal of so many tokens in hand."""
        whole = self.expected(proposed)[-1]
        return 1.0 + (whole.tokens - 1.0) / whole.proposed * proposed if whole.proposed else 1.0

    def _up_to(self, length: int) -> list[Position]:
        while len(self._positions) < length:
            self._positions.append(Position(len(self._positions) + 1))
        return self._positions[:length]
