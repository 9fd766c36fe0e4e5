"""Drafted tokens with their margins and runners-up, and `StopRule`, which decides where a draft stops its chain.

A draft draws the token of the highest score.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.arrays import Array, namespace, on_cpu

RUNNERS_UP = (0.4, 0.16, 0.08)  # how often each next best is right when the best is wrong (shipped family, T = 0)


class DraftToken(NamedTuple):
    """A drafted token, the margin of its score over the next best one (in logits), and the next best tokens."""

    token: int
    margin: float = 0.0
    runners_up: tuple[int, ...] = ()


class StopRule(NamedTuple):
    """Ends a chain at the token that makes its survival too small: the probability that the whole chain is accepted.

    `chances` [classes] is the probability that a token is accepted, by the class of its margin; `edges` separates the
    classes. `survivals` [lines] is the survival of each line so far, `worths` [lines] the least it may fall to. All are
    float64. Drawing stops once `enough` lines have ended.
    """

    edges: NDArray[np.float64]
    chances: NDArray[np.float64]
    survivals: NDArray[np.float64]
    worths: NDArray[np.float64]
    enough: int = 1

    @classmethod
    def never(cls, lines: int) -> StopRule:
        """A rule under which no line ends early."""
        return cls(np.empty(0), np.ones(1), np.ones(lines), np.zeros(lines))

    def after(self, guessed: Sequence[DraftToken]) -> StopRule:
        """The rule after one more token on each line."""
        chances = [self.chances[bisect(self.edges, guess.margin)] for guess in guessed]
        return self._replace(survivals=self.survivals * chances)

    @property
    def reached(self) -> bool:
        """True once enough lines have ended."""
        return int((self.survivals < self.worths).sum()) >= self.enough


def draft_tokens(scores: Array, ids: Array | None = None) -> list[DraftToken]:
    """The best token of each row of fp32 scores [n, columns], ties to the lowest id.

    `ids` are those of the columns, ascending int64; None where they count from 0.
    """
    best = _best_columns(scores)
    return best if ids is None else _renamed(best, ids)


def _best_columns(scores: Array) -> list[DraftToken]:
    num_best = min(1 + len(RUNNERS_UP), scores.shape[-1])
    if on_cpu(scores.device):
        return [_draft_token(row, num_best) for row in np.asarray(scores)]
    values, indices = namespace(scores.device).topk(scores, num_best)
    rows = zip(scores.argmax(-1).tolist(), values.tolist(), indices.tolist(), strict=True)
    # topk may name any of several tokens that share the highest score
    return [
        DraftToken(best, _margin(high[0], high[1]), tuple(token for token in tokens if token != best))
        for best, high, tokens in rows
    ]


def _draft_token(scores: NDArray[np.float32], num_best: int) -> DraftToken:
    """The token of one row [ids]; repeated argmax is faster than the selection of torch or NumPy."""
    rest, ranking = scores.copy(), []
    for _ in range(num_best):
        token = int(rest.argmax())
        ranking.append((token, float(rest[token])))
        rest[token] = -np.inf
    (best, highest), *others = ranking
    second = others[0][1] if others else -np.inf
    return DraftToken(best, _margin(highest, second), tuple(token for token, score in others if score > -np.inf))


def _renamed(columns: Sequence[DraftToken], ids: Array) -> list[DraftToken]:
    """Drafted columns as drafted tokens, with one look-up for all of them."""
    numbers = [column for guess in columns for column in (guess.token, *guess.runners_up)]
    tokens = iter(ids[namespace(ids.device).asarray(numbers, device=ids.device)].tolist())
    return [DraftToken(next(tokens), guess.margin, tuple(islice(tokens, len(guess.runners_up)))) for guess in columns]


def _margin(highest: float, second: float) -> float:
    """The difference, or 0 if it is not a number: such a draft is not sure."""
    margin = highest - second
    return 0.0 if math.isnan(margin) else margin
