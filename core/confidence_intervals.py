"""Confidence intervals of figures over prompts, by the bootstrap (Efron, Tibshirani 1993, chapters 13 and 14).

A figure is a function of the weight of each prompt: 1 each for its value, and the number of draws in every sample with
replacement for its interval. A figure that weighs two sides of the same prompts compares them in pairs, as `compare`
does with two drafts. Promotion and reports use the one confidence level, `CONFIDENCE`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Figure = Literal["speedup", "acceptance_rate", "tokens_per_pass"]
CONFIDENCE = 0.95
_DRAWS = 10_000
_DRAWS_AT_ONCE = 500  # bounds the memory


class Counts(Protocol):
    """The token counts of one record, such as `core.replay.replay.AcceptanceCounts`."""

    @property
    def tokens(self) -> int: ...
    @property
    def passes(self) -> int: ...
    @property
    def proposed(self) -> int: ...
    @property
    def accepted(self) -> int: ...
    @property
    def times(self) -> Sequence[float]: ...


# Numerator and denominators by record. The figure of several records is a ratio of sums, over the least denominator.
_TERMS: dict[Figure, Callable[[Counts], Sequence[float]]] = {
    "speedup": lambda counts: (counts.tokens, *counts.times),
    "acceptance_rate": lambda counts: (counts.accepted, counts.proposed),
    "tokens_per_pass": lambda counts: (counts.tokens, counts.passes),
}


class Estimate(NamedTuple):
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float


def estimate(count: int, figure: Callable[[Array], Array], seed: int = 0) -> Estimate:
    """The figure over `count` items, at least one, with its interval over samples with replacement.

    `figure` takes the number of draws of each item, [samples, count], and returns a number per sample.
    """
    rng, even = np.random.default_rng(seed), np.full(count, 1 / count)
    samples = (rng.multinomial(count, even, _DRAWS_AT_ONCE) for _ in range(_DRAWS // _DRAWS_AT_ONCE))
    figures = np.concatenate([figure(sample.astype(np.float64)) for sample in samples])
    low, high = np.quantile(figures, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    [value] = figure(np.ones((1, count))).tolist()
    return Estimate(value, low, high)


class Difference(NamedTuple):
    """The difference in a figure between candidate and baseline, and its 95 % interval by prompt.

    Of speedups it is the gain as a share of the baseline's.
    """

    difference: float
    low: float
    high: float

    @property
    def better(self) -> bool:
        """True if the whole interval lies above 0."""
        return self.low > 0.0

    @property
    def worse(self) -> bool:
        """True if the whole interval lies below 0."""
        return self.high < 0.0


def over_prompts(records: Sequence[Counts], prompts: Sequence[Hashable], figure: Figure, seed: int = 0) -> Estimate:
    """The figure of one draft. Records of the same prompt are drawn together. Raises ValueError without records."""
    if not prompts:
        raise ValueError("there is no figure: no records")
    sums = _sums(records, prompts, figure)
    return estimate(len(sums), lambda counts: _ratio(counts @ sums), seed)


def compare(
    candidate: Sequence[Counts],
    baseline: Sequence[Counts],
    prompts: Sequence[Hashable],
    figure: Figure = "acceptance_rate",
    seed: int = 0,
) -> Difference:
    """Compare two drafts over the same records. Records of the same prompt are drawn together.

    The figure is a ratio of sums, as for a service, not a mean of ratios. Raises ValueError without records.
    """
    if not prompts:
        raise ValueError("there is nothing to compare: no records")
    ours, theirs = _sums(candidate, prompts, figure), _sums(baseline, prompts, figure)
    less = _gain if figure == "speedup" else np.subtract
    difference = estimate(len(ours), lambda counts: less(_ratio(counts @ ours), _ratio(counts @ theirs)), seed)
    return Difference(*difference)


def _sums(records: Sequence[Counts], prompts: Sequence[Hashable], figure: Figure) -> Array:
    """Numerator and denominators of the figure by prompt: [prompts, 1 + denominators]."""
    by_prompt: dict[Hashable, list[Sequence[float]]] = {}
    for record, prompt in zip(records, prompts, strict=True):
        by_prompt.setdefault(prompt, []).append(_TERMS[figure](record))
    return np.array([np.sum(terms, 0) for terms in by_prompt.values()], np.float64)


def _gain(ours: Array, theirs: Array) -> Array:
    gain: Array = np.divide(ours - theirs, theirs, out=np.zeros(len(ours)), where=theirs > 0)
    return gain


def _ratio(sums: Array) -> Array:
    # a sample in which nothing was proposed counts as 0 for both sides
    least = sums[:, 1:].min(1)
    ratio: Array = np.divide(sums[:, 0], least, out=np.zeros(len(sums)), where=least > 0)
    return ratio
