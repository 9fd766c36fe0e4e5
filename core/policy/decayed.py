"""The one estimator of shares: counts of trials and successes, of which old ones weigh less, and a prior."""

from __future__ import annotations


class Decayed:
    """The share of trials that succeed.

    About the last `memory` trials count. Beside them stands a `prior`, which is worth `weight` trials and does not
    fade: without new trials, `fade` leads back to it.
    """

    __slots__ = ("_memory", "_prior", "_weight", "successes", "trials")

    def __init__(self, memory: float, prior: float = 0.0, weight: float = 0.0) -> None:
        self._memory = memory
        self._prior = prior
        self._weight = weight
        self.successes = 0.0
        self.trials = 0.0

    def observe(self, successes: float, trials: float = 1.0) -> None:
        """Count trials; earlier ones fade by the share of the memory that these take."""
        self.fade(1.0 - trials / self._memory)
        self.add(successes, trials)

    def add(self, successes: float, trials: float) -> None:
        """Count trials; earlier ones do not fade."""
        self.successes += successes
        self.trials += trials

    def fade(self, keep: float) -> None:
        """Keep this share of all counts."""
        self.successes *= keep
        self.trials *= keep

    @property
    def share(self) -> float:
        return self.share_from(self._prior)

    def share_from(self, prior: float) -> float:
        """The share with another prior."""
        return (self.successes + self._weight * prior) / (self.trials + self._weight)
