"""What a draft says next: the token it guesses, how sure it is of it, what else it might have been, and where it stops.

Enters: scores, whose highest is the draw. Leaves: guesses.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

RUNNERS_UP = (0.4, 0.16, 0.08)  # how often the next best are right where the best is not (shipped family, T = 0)


class Guess(NamedTuple):
    """A token, by how much its score leads the next best one (in logits), and the next best ones."""

    token: int
    lead: float = 0.0
    others: tuple[int, ...] = ()


class Ending(NamedTuple):
    """Where lines that are being drawn end: with the guess that makes the chance that all of one is right too small.

    `chances` [classes] are those of guesses to be right, by their leads, which `edges` part into classes. `survivals`
    [lines] are what the lines have come to, `worths` what they must not fall below. All float64. Drawing is over when
    `enough` lines have ended.
    """

    edges: NDArray[np.float64]
    chances: NDArray[np.float64]
    survivals: NDArray[np.float64]
    worths: NDArray[np.float64]
    enough: int = 1

    @classmethod
    def never(cls, lines: int) -> Ending:
        """So many lines go on as long as they may."""
        return cls(np.empty(0), np.ones(1), np.ones(lines), np.zeros(lines))

    def after(self, guessed: Sequence[Guess]) -> Ending:
        """Each line has got a guess more."""
        chances = [self.chances[bisect(self.edges, guess.lead)] for guess in guessed]
        return self._replace(survivals=self.survivals * chances)

    @property
    def reached(self) -> bool:
        """Whether enough lines have ended."""
        return int((self.survivals < self.worths).sum()) >= self.enough


def guesses(scores: torch.Tensor) -> list[Guess]:
    """The best token of each row of fp32 scores [n, ids], ties to the lowest id."""
    most = min(1 + len(RUNNERS_UP), scores.shape[-1])
    if scores.device.type == "cpu":
        return [_guess(row, most) for row in scores.numpy()]
    values, indices = scores.topk(most)
    rows = zip(scores.argmax(-1).tolist(), values.tolist(), indices.tolist(), strict=True)
    # the highest score may be several tokens', of which topk names any
    return [
        Guess(best, _lead(high[0], high[1]), tuple(token for token in found if token != best))
        for best, high, found in rows
    ]


def _guess(scores: NDArray[np.float32], most: int) -> Guess:
    """Of one row [ids]; to look for the highest again and again is quicker than torch's or NumPy's selection."""
    left, found = scores.copy(), []
    for _ in range(most):
        token = int(left.argmax())
        found.append((token, float(left[token])))
        left[token] = -np.inf
    (best, highest), *others = found
    second = others[0][1] if others else -np.inf
    return Guess(best, _lead(highest, second), tuple(token for token, score in others if score > -np.inf))


def _lead(highest: float, second: float) -> float:
    """Nothing where one is no number: of that a draft is not sure."""
    lead = highest - second
    return 0.0 if math.isnan(lead) else lead
