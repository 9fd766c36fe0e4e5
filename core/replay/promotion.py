"""Promotion: the choice of a slot's draft among candidates, by speedup on the same held-out records.

A cheap draft may beat a better guesser (`core.replay.speed`). Between drafts that cost the same, replay decides alone.
A gain is a share of the other's speedup, so that gains with other costs, in other tasks and retrainings, are alike.

The general slot gets the best single draft: candidates in turn, by a paired bootstrap (`promote`). A task's adapter
must then be better than that draft. Tasks are judged together (`promote_tasks`): gains of different tasks are of one
kind, so what one task shows counts a little for the others. This is the normal hierarchical model, integrated over the
spread between tasks (Gelman et al., Bayesian Data Analysis, section 5.4). Evidence of earlier retrainings counts, too.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from core.bundle.manifest import Evidence
from core.confidence_intervals import CONFIDENCE, Difference, compare
from core.replay.replay import AcceptanceCounts

POWER = 0.8  # chance that an effect which is there is shown
PROMPT_SPREAD = 0.06  # standard deviation of the gain on one prompt, as seen in retrainings of the family
_TASK_SPREAD = 0.05  # of gains between tasks, expected beforehand: the scale of a half-normal prior
_EARLIER_VARIANCE = 2.0  # times its own: earlier drafts, base and traffic were others
_SPREADS = np.linspace(0.0, 4 * _TASK_SPREAD, 201)
_STANDARD = NormalDist()
_NORMAL_WIDTH = 2 * _STANDARD.inv_cdf((1 + CONFIDENCE) / 2)  # of an interval, in standard deviations


class Promotion(NamedTuple):
    """The promoted candidate, and the reason in words."""

    name: str
    reason: str


class TaskPromotion(NamedTuple):
    """Whether a task's draft is promoted, and the reason in words."""

    promoted: bool
    reason: str


class Posterior(NamedTuple):
    """The gain of a task's draft given the evidence of all tasks, and the probability that it is above 0."""

    gain: float
    deviation: float
    better: float


def promote(candidates: Mapping[str, Sequence[AcceptanceCounts]], prompts: Sequence[Hashable]) -> Promotion:
    """Compare the candidates in order: the first holds the slot until a later one beats it.

    To beat the holder, the whole interval of the gain in speedup must lie above 0 (paired bootstrap by prompt).
    So the draft in service comes first. All counts have times. Raises ValueError without records.
    """
    (holder, *challengers), reasons = candidates, list[str]()
    count = len(set(prompts))
    for name in challengers:
        difference = compare(candidates[name], candidates[holder], prompts, "speedup")
        reasons.append(f"{name} {_against(difference, count)} {holder}")
        if difference.better:
            holder = name
    return Promotion(holder, f"{_on(count)}: " + "; ".join(reasons) if reasons else "the only candidate")


def evidence(
    candidate: Sequence[AcceptanceCounts],
    holder: Sequence[AcceptanceCounts],
    prompts: Sequence[Hashable],
    earlier: Evidence | None = None,
) -> Evidence:
    """What these records say of the gain in speedup, weighted together with earlier evidence by precision.

    Raises ValueError without records.
    """
    now = compare(candidate, holder, prompts, "speedup")
    count = len(set(prompts))
    variance = max(((now.high - now.low) / _NORMAL_WIDTH) ** 2, _least_variance(count))
    if earlier is None:
        return Evidence(gain=now.difference, variance=variance, prompts=count)
    precision, before = 1 / variance, 1 / (_EARLIER_VARIANCE * max(earlier.variance, _least_variance(earlier.prompts)))
    return Evidence(
        gain=(now.difference * precision + earlier.gain * before) / (precision + before),
        variance=1 / (precision + before),
        prompts=count + earlier.prompts,
        looks=earlier.looks + 1,
    )


def _least_variance(prompts: int) -> float:
    """Of a gain on so many prompts: a few that happen to agree, or just one, leave the bootstrap no spread."""
    return PROMPT_SPREAD**2 / prompts


def promote_tasks(tasks: Mapping[str, Evidence], holder: str) -> dict[str, TaskPromotion]:
    """By task, whether its draft takes the slot from the `holder`.

    It does if it is better with a probability of 1 - 0.05 / (j (j + 1)) at the j-th look at its evidence. These errors
    sum to 5 % over all retrainings, however many there are.
    """
    posteriors = pooled(tasks)
    return {task: _promotion(tasks[task], posteriors[task], holder) for task in tasks}


def pooled(tasks: Mapping[str, Evidence]) -> dict[str, Posterior]:
    """The gain of every task, given the evidence of all."""
    if not tasks:
        return {}
    gains = np.array([task.gain for task in tasks.values()])
    variances = np.array([task.variance for task in tasks.values()])
    total = variances + _SPREADS[:, None] ** 2  # [spreads, tasks]
    mean_variance = 1 / (1 / total).sum(1)
    mean = (gains / total).sum(1) * mean_variance
    deviations = (gains - mean[:, None]) ** 2 / total
    logs = 0.5 * (np.log(mean_variance) - (np.log(total) + deviations).sum(1) - (_SPREADS / _TASK_SPREAD) ** 2)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    share = variances / total  # of the mean over tasks in the estimate of each
    means = share * mean[:, None] + (1 - share) * gains
    widths = np.sqrt((1 - share) * variances + share**2 * mean_variance[:, None])
    better = np.vectorize(_STANDARD.cdf)(means / widths)
    gain = weights @ means
    deviation = np.sqrt(np.maximum(0.0, weights @ (widths**2 + means**2) - gain**2))
    columns = zip(gain.tolist(), deviation.tolist(), (weights @ better).tolist(), strict=True)
    return {task: Posterior(*column) for task, column in zip(tasks, columns, strict=True)}


def prompts_needed(effect: float, *, spread: float = PROMPT_SPREAD, error: float = (1 - CONFIDENCE) / 2) -> int:
    """Prompts on which a gain of `effect` is shown with the probability `POWER`, at this one-sided error."""
    quantiles = _STANDARD.inv_cdf(1 - error) + _STANDARD.inv_cdf(POWER)
    return math.ceil((quantiles * spread / effect) ** 2)


def _promotion(evidence: Evidence, posterior: Posterior, holder: str) -> TaskPromotion:
    error = (1 - CONFIDENCE) / (evidence.looks * (evidence.looks + 1))
    promoted = posterior.better >= 1 - error
    half = _STANDARD.inv_cdf(1 - error) * posterior.deviation
    reason = (
        f"{_on(evidence.prompts, evidence.looks)}: task {posterior.gain:+.1%} ({posterior.gain - half:+.1%} to "
        f"{posterior.gain + half:+.1%}), {'better' if promoted else 'not better'} than {holder}, all tasks considered"
    )
    if not promoted:
        reason += _needed(posterior.gain, math.sqrt(evidence.variance * evidence.prompts), error)
    return TaskPromotion(promoted, reason)


def _on(count: int, looks: int = 1) -> str:
    retrainings = "" if looks == 1 else f" in {looks} retrainings"
    return f"tokens a second on {count} prompts{retrainings}"


def _against(difference: Difference, count: int) -> str:
    interval = f"{difference.difference:+.1%} ({difference.low:+.1%} to {difference.high:+.1%})"
    if difference.better:
        return f"{interval}, better than"
    spread = (difference.high - difference.low) / _NORMAL_WIDTH * math.sqrt(count)
    return f"{interval}{_needed(difference.difference, spread, (1 - CONFIDENCE) / 2)}, not better than"


def _needed(gain: float, spread: float, error: float) -> str:
    if gain <= 0:
        return ""
    return f"; to show {gain:+.1%} would take {prompts_needed(gain, spread=max(spread, 1e-6), error=error)} prompts"
