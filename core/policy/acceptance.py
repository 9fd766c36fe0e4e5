"""Estimates how many proposed tokens the target will accept.

Of a draft, they are counted per key and position in the proposal. An estimate forgets with time and then rests on
its prior, which is optimistic. A draft that has not been asked for long is therefore asked again; that is the only
exploration there is (`core.policy.draft_policy`).

What costs nothing to ask is counted token by token, proposed or not (`TokenChances`), and needs no exploration.

The hotter an answer is sampled, the harder it is to guess. So there is an estimate for each band of temperatures.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from core.policy.decayed import Decayed

BANDS = (
    1e-5,
    0.8,
)  # the highest temperature of each band but the last; the first is `core.sampling.params.GREEDY_BELOW`

MEMORY = 200.0  # passes that an estimate remembers
PRIOR_ACCEPTANCE = 0.7  # of a token whose predecessors were accepted
PRIOR_WEIGHT = 2.0  # passes that the prior is worth
GUESSES = 300.0  # of a kind, that its chance remembers
GUESSES_OF_PRIOR = 1.5  # that the prior of a kind is worth
MOST_SUPPORT = 4  # more than any kind has


def band(temperature: float) -> int:
    """The band of a temperature: greedy, such as is common for facts and code, or hotter."""
    return bisect_left(BANDS, temperature)


class Expected(NamedTuple):
    """A pass of one session: the tokens it commits, one of them the target's own, and the tokens proposed to it."""

    tokens: float
    proposed: float


class _Position:
    """A place in the proposal: of the passes that asked for a token there, those with one, and with an accepted one."""

    __slots__ = ("accepted", "proposed")

    def __init__(self, number: int) -> None:
        self.proposed = Decayed(MEMORY, prior=1.0, weight=PRIOR_WEIGHT)
        self.accepted = Decayed(MEMORY, prior=PRIOR_ACCEPTANCE**number, weight=PRIOR_WEIGHT)


class AcceptanceEstimate:
    """The positions of one draft's proposals."""

    def __init__(self) -> None:
        self._positions: list[_Position] = []
        self._expected = [Expected(1.0, 0.0)]  # a cache: every plan reads it

    def observe(self, requested: int, proposed: int, accepted: int) -> None:
        """Count a pass that asked for `requested` tokens, was given `proposed` and accepted `accepted` of them."""
        self._reach(requested)
        for index, position in enumerate(self._positions[:requested]):
            position.proposed.observe(index < proposed)
            position.accepted.observe(index < accepted)
        del self._expected[1:]

    def forget(self, keep: float) -> None:
        """Let the prior weigh more: keep this share of all counts."""
        for position in self._positions:
            position.proposed.fade(keep)
            position.accepted.fade(keep)
        del self._expected[1:]

    def expected(self, limit: int) -> list[Expected]:
        """Passes that ask for 0 .. `limit` tokens."""
        self._reach(limit)
        for position in self._positions[len(self._expected) - 1 : limit]:
            tokens, proposed = self._expected[-1]
            self._expected.append(Expected(tokens + position.accepted.share, proposed + position.proposed.share))
        return self._expected[: limit + 1]

    def tokens(self, proposed: int) -> float:
        """Expected tokens of a pass with `proposed` tokens in hand."""
        whole = self.expected(proposed)[-1]
        return 1.0 + (whole.tokens - 1.0) / whole.proposed * proposed if whole.proposed else 1.0

    def _reach(self, length: int) -> None:
        self._positions += [_Position(number + 1) for number in range(len(self._positions), length)]


class Kind(NamedTuple):
    """Guesses of a token that are alike: a class of the context that they rest on, and what else speaks for them."""

    context: int
    support: int

    @property
    def prior(self) -> float:
        """The chance before any was counted: more support, more chance."""
        return (1.0 + self.support) / (1.0 + MOST_SUPPORT)


class TokenChances:
    """The chance that a guessed token is the target's, given that those guessed before it are, by kind of guess."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, Decayed] = {}

    def of(self, kind: Kind) -> float:
        """Strictly between 0 and 1."""
        return self._estimate(kind).share

    def observe(self, kind: Kind, *, right: bool) -> None:
        """Count a guess whose predecessors were all right."""
        self._estimate(kind).observe(right)

    def _estimate(self, kind: Kind) -> Decayed:
        estimate = self._kinds.get(kind)
        if estimate is None:
            estimate = self._kinds[kind] = Decayed(GUESSES, kind.prior, GUESSES_OF_PRIOR)
        return estimate
