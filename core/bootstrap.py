"""How sure a figure is that was taken over some prompts: the bootstrap (Efron, Tibshirani 1993, chapters 13 and 14).

A figure is a function of how often each prompt counts: once each, and anew in every sample with replacement. One that
sets two sides of the same prompts against each other compares them in pairs; `compare` does so with two drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # torch comes with it, and a client that compares answers does without
    from core.acceptance import Acceptance

Array = npt.NDArray[np.float64]
Figure = Literal["acceptance_rate", "tokens_per_pass"]
_COUNTS: dict[Figure, tuple[str, str]] = {
    "acceptance_rate": ("accepted", "proposed"),
    "tokens_per_pass": ("tokens", "passes"),
}
_DRAWS = 10_000
_DRAWS_AT_ONCE = 500  # bounds the memory to this many times the prompts
_LEVEL = 0.95


class Estimate(NamedTuple):
    """A figure over all, and its 95 % interval."""

    value: float
    low: float
    high: float


def estimate(count: int, figure: Callable[[Array], Array], seed: int = 0) -> Estimate:
    """The figure over `count` things, at least one, and its interval over samples of as many with replacement.

    `figure` takes how often each thing was drawn, [samples, count], and returns a number per sample.
    """
    rng, even = np.random.default_rng(seed), np.full(count, 1 / count)
    samples = (rng.multinomial(count, even, _DRAWS_AT_ONCE) for _ in range(_DRAWS // _DRAWS_AT_ONCE))
    figures = np.concatenate([figure(sample.astype(np.float64)) for sample in samples])
    low, high = np.quantile(figures, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]).tolist()
    [value] = figure(np.ones((1, count))).tolist()
    return Estimate(value, low, high)


class Difference(NamedTuple):
    """What the candidate has over the baseline in a figure, and the 95 % interval of that; resampled by prompt."""

    difference: float
    low: float
    high: float

    @property
    def better(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.low > 0.0


def compare(
    candidate: Sequence[Acceptance],
    baseline: Sequence[Acceptance],
    prompts: Sequence[Hashable],
    figure: Figure = "acceptance_rate",
    seed: int = 0,
) -> Difference:
    """Compare two drafts over the same records; entries of an equal prompt are drawn together.

    The figure is one ratio of sums, not a mean of ratios, as it is for a service. Raises ValueError without records.
    """
    if not prompts:
        raise ValueError("there is nothing to compare: no records")
    ours, theirs = _sums(candidate, prompts, figure), _sums(baseline, prompts, figure)
    return Difference(*estimate(len(ours), lambda drawn: _ratio(drawn @ ours) - _ratio(drawn @ theirs), seed))


def _sums(acceptances: Sequence[Acceptance], prompts: Sequence[Hashable], figure: Figure) -> Array:
    """Numerator and denominator of the figure by prompt: [prompts, 2]."""
    above, below = _COUNTS[figure]
    by_prompt: dict[Hashable, list[float]] = {}
    for acceptance, prompt in zip(acceptances, prompts, strict=True):
        sums = by_prompt.setdefault(prompt, [0.0, 0.0])
        sums[0] += getattr(acceptance, above)
        sums[1] += getattr(acceptance, below)
    return np.array(list(by_prompt.values()))


def _ratio(sums: Array) -> Array:
    # a sample in which nothing was proposed speaks for neither side: 0
    return np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] > 0)
