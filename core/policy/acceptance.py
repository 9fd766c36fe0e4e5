"""Estimates how many proposed tokens the target will accept.

Of a draft, they are counted per key and position in the proposal. An estimate forgets with time and then rests on
its prior, which is optimistic. A draft that has not been asked for long is therefore asked again; that is the only
exploration there is (`core.policy.draft_policy`).

What costs nothing to ask is counted token by token, proposed or not (`TokenChances`), and needs no exploration.
"""

from __future__ import annotations

from typing import NamedTuple

MEMORY = 200.0  # passes that an estimate remembers
PRIOR_ACCEPTANCE = 0.7  # of a token whose predecessors were accepted
PRIOR_WEIGHT = 2.0  # passes that the prior is worth
GUESSES = 300.0  # of a kind, that its chance remembers
GUESSES_OF_PRIOR = 1.5  # that the prior of a kind is worth
MOST_SUPPORT = 4  # more than any kind has


class Expected(NamedTuple):
    """A pass of one session: the tokens it commits, one of them the target's own, and the tokens proposed to it."""

    tokens: float
    proposed: float


class _Position(NamedTuple):
    """Decayed counts: of the passes that asked for this position, of its proposals and of those accepted."""

    asked: float = 0.0
    proposed: float = 0.0
    accepted: float = 0.0

    def times(self, keep: float) -> _Position:
        return _Position(keep * self.asked, keep * self.proposed, keep * self.accepted)


class AcceptanceEstimate:
    """The positions of one draft's proposals."""

    def __init__(self) -> None:
        self._positions: list[_Position] = []
        self._expected = [Expected(1.0, 0.0)]  # a cache: every plan reads it

    def observe(self, asked: int, proposed: int, accepted: int) -> None:
        """Count a pass that asked for `asked` tokens, was given `proposed` and accepted `accepted` of them."""
        self._reach(asked)
        for index, old in enumerate(self._positions[:asked]):
            kept = old.times(1.0 - 1.0 / MEMORY)
            new = kept.asked + 1.0, kept.proposed + (index < proposed), kept.accepted + (index < accepted)
            self._positions[index] = _Position(*new)
        del self._expected[1:]

    def forget(self, keep: float) -> None:
        """Let the prior weigh more: keep this share of all counts."""
        self._positions = [position.times(keep) for position in self._positions]
        del self._expected[1:]

    def expected(self, most: int) -> list[Expected]:
        """Passes that ask for 0 .. `most` tokens."""
        self._reach(most)
        for number in range(len(self._expected), most + 1):
            (tokens, length), position = self._expected[-1], self._positions[number - 1]
            weight = position.asked + PRIOR_WEIGHT
            accepted = (position.accepted + PRIOR_WEIGHT * PRIOR_ACCEPTANCE**number) / weight
            proposed = (position.proposed + PRIOR_WEIGHT) / weight
            self._expected.append(Expected(tokens + accepted, length + proposed))
        return self._expected[: most + 1]

    def tokens(self, proposed: int) -> float:
        """Expected tokens of a pass with `proposed` tokens in hand."""
        whole = self.expected(proposed)[-1]
        return 1.0 + (whole.tokens - 1.0) / whole.proposed * proposed if whole.proposed else 1.0

    def _reach(self, length: int) -> None:
        self._positions += [_Position()] * (length - len(self._positions))


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
        self._counts: dict[Kind, tuple[float, float]] = {}  # decayed: of the guesses that were right, and of all

    def of(self, kind: Kind) -> float:
        """Strictly between 0 and 1."""
        right, counted = self._counts.get(kind, (0.0, 0.0))
        return (right + GUESSES_OF_PRIOR * kind.prior) / (counted + GUESSES_OF_PRIOR)

    def observe(self, kind: Kind, *, right: bool) -> None:
        """Count a guess whose predecessors were all right."""
        earlier, counted = self._counts.get(kind, (0.0, 0.0))
        keep = 1.0 - 1.0 / GUESSES
        self._counts[kind] = (keep * earlier + right, keep * counted + 1.0)
