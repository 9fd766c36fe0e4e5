"""Is one draft better than another on the same prompts? The paired bootstrap (Efron, Tibshirani 1993, chapter 14)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from core.acceptance import Acceptance, total

Figure = Literal["acceptance_rate", "tokens_per_pass"]
_COUNTS: dict[Figure, tuple[str, str]] = {
    "acceptance_rate": ("accepted", "proposed"),
    "tokens_per_pass": ("tokens", "passes"),
}
_DRAWS = 10_000
_DRAWS_AT_ONCE = 500  # bounds the memory to this many times the prompts
_LEVEL = 0.95


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
    rng = np.random.default_rng(seed)
    drawn = np.concatenate([_resampled(ours, theirs, rng) for _ in range(_DRAWS // _DRAWS_AT_ONCE)])
    low, high = np.quantile(drawn, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    difference = getattr(total(candidate), figure) - getattr(total(baseline), figure)
    return Difference(difference, float(low), float(high))


def _sums(acceptances: Sequence[Acceptance], prompts: Sequence[Hashable], figure: Figure) -> npt.NDArray[np.float64]:
    """Numerator and denominator of the figure by prompt: [prompts, 2]."""
    above, below = _COUNTS[figure]
    by_prompt: dict[Hashable, list[float]] = {}
    for acceptance, prompt in zip(acceptances, prompts, strict=True):
        sums = by_prompt.setdefault(prompt, [0.0, 0.0])
        sums[0] += getattr(acceptance, above)
        sums[1] += getattr(acceptance, below)
    return np.array(list(by_prompt.values()))


def _resampled(
    ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64], rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Differences of the figure over samples of the prompts with replacement: [_DRAWS_AT_ONCE]."""
    weights = rng.multinomial(len(ours), np.full(len(ours), 1 / len(ours)), _DRAWS_AT_ONCE).astype(np.float64)
    ratios = [_ratio(weights @ sums) for sums in (ours, theirs)]
    difference: npt.NDArray[np.float64] = ratios[0] - ratios[1]
    return difference


def _ratio(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # a sample in which nothing was proposed speaks for neither side: 0
    return np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] > 0)
