"""Speculative decoding by rejection sampling (Leviathan et al., ICML 2023): the reference for what coupling costs.

Every random decision is asked of `choose(probabilities) -> index`, so the same sampler can be run with a generator or
unfolded over all its decisions into its exact law.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

Law = Sequence[float]
Model = Callable[[tuple[int, ...]], Law]  # tokens so far -> law of the next
Choose = Callable[[Law], int]


def speculative_run(
    target: Model, draft: Model, tokens: tuple[int, ...], num_speculative_tokens: int, choose: Choose
) -> tuple[int, ...]:
    """`tokens` with what one target pass adds: the accepted tokens, then a recovered or the bonus token."""
    proposed = tokens
    for _ in range(num_speculative_tokens):
        proposed = (*proposed, choose(draft(proposed)))
    for at in range(len(tokens), len(proposed)):
        target_law, draft_law, token = target(proposed[:at]), draft(proposed[:at]), proposed[at]
        accept = min(1.0, target_law[token] / draft_law[token])
        if not choose([1.0 - accept, accept]):
            return (*proposed[:at], choose(residual(target_law, draft_law)))
    return (*proposed, choose(target(proposed)))


def residual(target_law: Law, draft_law: Law) -> Law:
    """What is left of the target's law where the draft falls short of it; the law of the recovered token."""
    missing = [max(p - q, 0.0) for p, q in zip(target_law, draft_law, strict=True)]
    return [mass / sum(missing) for mass in missing]


def acceptance(target_law: Law, draft_law: Law) -> float:
    """The share of proposals that survives, the most that any rule can reach."""
    return sum(map(min, target_law, draft_law))


def unfold(sampler: Callable[[Choose], tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """The exact law of a sampler's outcome: every path of decisions is walked once."""
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)
    paths: list[tuple[int, ...]] = [()]
    while paths:
        walk = _Walk(paths.pop())
        law[sampler(walk.choose)] += walk.probability
        paths += walk.others
    return dict(law)


class _Walk:
    """Follows `path`, then takes the first possible option each time and notes the others for later."""

    def __init__(self, path: tuple[int, ...]) -> None:
        self.probability = 1.0
        self.others: list[tuple[int, ...]] = []
        self._path = path
        self._taken: tuple[int, ...] = ()

    def choose(self, law: Law) -> int:
        if len(self._taken) < len(self._path):
            option = self._path[len(self._taken)]
        else:
            option, *rest = (at for at, probability in enumerate(law) if probability > 0)
            self.others += [(*self._taken, other) for other in rest]
        self._taken = (*self._taken, option)
        self.probability *= law[option]
        return option
