"""What comes of choosing a draft one way or another: the router's choice, the best in hindsight, always the same one.

Enters: trials. Leaves: counts by policy, differences with intervals, and where prompts went. All policies see the same
answers, so the one with the fewest target passes is best, and no resampling can turn a regret negative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.confidence_intervals import Difference, Figure, compare, estimate
from core.replay.replay import AcceptanceCounts, total
from tests.bench.items import BASE, GENERAL, GENERAL_SLOT, MIXED
from tests.bench.replays import Trial

ROUTED, REROUTED, OWN_TEXT, TOGETHER, BEST = "routed", "routed + rerouted", "own text", "all together", "best"
REQUESTS, OTHERS, ABSTAINED, ELSEWHERE = "as the request alone", "as the rest alone", "abstained", "elsewhere"

Policy = Callable[[Trial], AcceptanceCounts]
POLICIES: Mapping[str, Policy] = {
    GENERAL: lambda trial: trial.counts[GENERAL],
    BASE: lambda trial: trial.counts[BASE],
    MIXED: lambda trial: trial.counts[MIXED],
    ROUTED: lambda trial: trial.counts[trial.routed],
    REROUTED: lambda trial: trial.rerouted.counts,
    OWN_TEXT: lambda trial: trial.own_text,
    TOGETHER: lambda trial: trial.together,
    BEST: lambda trial: trial.counts[best_pools(trial)[0]],
}
"""`best` is taken among the pools, the one draft that took the fewest passes for this very answer."""


class Share(NamedTuple):
    """A share of trials and its 95 % interval, resampled by prompt."""

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.share:.2f} ({self.low:.2f} to {self.high:.2f})"


def best_pools(trial: Trial) -> list[str]:
    """All pools that no other beats on this answer."""
    passes = {pool: trial.counts[pool].passes for pool in trial.pools}
    return [pool for pool, count in passes.items() if count == min(passes.values())]


def counts(policy: str, trials: Sequence[Trial]) -> list[AcceptanceCounts]:
    return [POLICIES[policy](trial) for trial in trials]


def whole(policy: str, trials: Sequence[Trial]) -> AcceptanceCounts:
    return total(counts(policy, trials))


def over(policy: str, baseline: str, trials: Sequence[Trial], figure: Figure) -> Difference:
    """What a policy has over another, the answers to one prompt drawn together."""
    prompts = [trial.prompt.text for trial in trials]
    return compare(counts(policy, trials), counts(baseline, trials), prompts, figure)


def best_found(trials: Sequence[Trial]) -> Share:
    """How often the prompt went to a draft that is best for it."""
    return _share(trials, [float(trial.routed in best_pools(trial)) for trial in trials])


def best_by_chance(trials: Sequence[Trial]) -> float:
    """How often it would have, had the pools been drawn from a hat: several may be best."""
    return float(np.mean([len(best_pools(trial)) / len(trial.pools) for trial in trials]))


def best_is(pool: str, trials: Sequence[Trial]) -> Share:
    """How often one pool's draft is best."""
    return _share(trials, [float(pool in best_pools(trial)) for trial in trials])


def went(trials: Sequence[Trial]) -> Counter[str]:
    """Where the prompts were routed, told by where the router sends their parts alone; one count per trial."""
    return Counter(map(_where, trials))


def _where(trial: Trial) -> str:
    if trial.routed == GENERAL_SLOT:
        return ABSTAINED
    if trial.routed == trial.request:
        return REQUESTS
    return OTHERS if trial.routed == trial.other else ELSEWHERE


def _share(trials: Sequence[Trial], hits: Sequence[float]) -> Share:
    by_prompt: dict[str, list[float]] = {}
    for trial, hit in zip(trials, hits, strict=True):
        by_prompt.setdefault(trial.prompt.text, []).append(hit)
    sums = np.array([(sum(found), len(found)) for found in by_prompt.values()])

    def shares(drawn: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        hit, tried = (drawn @ sums).T
        return hit / tried

    return Share(*estimate(len(sums), shares))
