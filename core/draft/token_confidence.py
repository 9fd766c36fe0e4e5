"""The probability that a drafted token is accepted, learned from verdicts by the token's margin.

The margin is the lead of the token's score over the next best one, in logits, noise included. A chain that ends where
it is likely wrong wastes no rows of the target, and may be long elsewhere.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence

import numpy as np

from core.model.draft_tokens import StopRule
from core.policy.decayed import Decayed

EDGES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # logits, between the classes of margins
MEMORY = 500.0  # tokens that a class remembers
_PRIOR_WEIGHT = 4.0  # tokens
_DOUBT, _FADES = 0.7, 2.5  # a token without a margin is rejected with this probability, one of 2.5 logits e times less


class Confidence:
    """Decayed counts for each class of margins."""

    def __init__(self) -> None:
        middles = [(low + high) / 2 for low, high in zip((0.0, *EDGES), (*EDGES, 2 * EDGES[-1]), strict=True)]
        self._classes = [Decayed(MEMORY) for _ in middles]
        for of_class, middle in zip(self._classes, middles, strict=True):  # this prior fades
            of_class.add(_PRIOR_WEIGHT * (1.0 - _DOUBT * math.exp(-middle / _FADES)), _PRIOR_WEIGHT)
        self._edges = np.array(EDGES)
        self._chances = [of_class.share for of_class in self._classes]

    def of(self, margin: float) -> float:
        """Probability that the target draws the token too."""
        return self._chances[bisect(EDGES, margin)]

    def ending(self, survivals: Sequence[float], worths: Sequence[float], enough: int) -> StopRule:
        """The rule that ends lines of these survivals, `enough` of which have to end."""
        return StopRule(self._edges, np.array(self._chances), np.array(survivals), np.array(worths), enough)

    def observe(self, margin: float, *, right: bool) -> None:
        """Count a drafted token that a verdict reached."""
        index = bisect(EDGES, margin)
        self._classes[index].observe(right)
        self._chances[index] = self._classes[index].share
