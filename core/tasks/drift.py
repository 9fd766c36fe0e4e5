"""Drift: how far the recent answers of a service are from earlier ones, as a reason to retrain.

The reference are the first answers that were given under the live bundle, not the answers that its retraining learned
from. Both sides then have the same router, drafts and embedder, so that only the traffic differs; the answers of a
retraining were given under an older bundle, or under none, and have neither this router's prior nor these drafts'
acceptance. What had changed before the bundle went live is not seen.

Two figures are population stability indices, the sum over bins of (q - p) ln(q / p) for shares p of the reference and
q of the recent answers. As a rule of thumb, below .1 is stable, .1 to .25 some change, and above .25 drift. Half an
answer is added to every bin of both sides, so that an empty one has a finite logarithm. Without any drift an index is
(bins - 1) (1/n + 1/m) on average, for n and m answers: .09 for ten bins and 200 answers a side, .04 for 500. Of 1,500
simulated pairs of sides with 200 answers each, 3 had more than .25 for the distance, and none for the task mix.

The third figure is the fall of the drafts' acceptance. It is a rate, so that a service which drafts more tokens for a
pass than it did, as it does under less load, shows a fall too. A router that fails or is late counts as `general`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.confidence_intervals import Estimate, estimate
from core.draft_key import GENERAL
from core.tasks.embedding import Matrix
from core.tasks.identity import TaskCentroids

SMOOTHING = 0.5  # answers added to every bin
STABLE = 0.1
BINS = 10  # of the distance, by quantiles of the reference
LEAST_OF_TASK = 30  # answers of a task on each side; fewer say nothing of its acceptance
_NAMED = 3  # tasks that a verdict on the mix names
_SOURCE = "draft"
_Counts = NDArray[np.float64]


class Counted(Protocol):
    """Tokens of one source, such as `core.traces.store.Proposals`."""

    @property
    def proposed(self) -> int: ...
    @property
    def accepted(self) -> int: ...


class Answered(Protocol):
    """What is read of an answer, such as `core.traces.store.Trace`."""

    @property
    def task(self) -> str | None: ...
    @property
    def prior(self) -> Mapping[str, float] | None: ...
    @property
    def sources(self) -> Mapping[str, Counted] | None: ...


class Observation(msgspec.Struct, frozen=True):
    """What an answer says of the traffic, without its content.

    `task` is the likeliest by the router's prior, which no draft's acceptance affects, or else the one routed to.
    `distance` is 1 less the cosine of the prompt's embedding with the nearest centroid; None if it was not embedded.
    `proposed` and `accepted` are tokens of drafts.
    """

    task: str
    prior: dict[str, float]
    distance: float | None
    proposed: int
    accepted: int

    @classmethod
    def of(cls, answer: Answered, distance: float | None = None) -> Observation:
        prior = dict(answer.prior or {})
        task = max(prior, key=lambda name: prior[name]) if prior else answer.task or GENERAL
        drafted = (answer.sources or {}).get(_SOURCE)
        return cls(task, prior, distance, drafted.proposed if drafted else 0, drafted.accepted if drafted else 0)


class Limits(msgspec.Struct, frozen=True):
    """From where on a figure counts as drift.

    `index` is for both stability indices. `fall` is that of a task's acceptance which its whole 95 % interval must
    exceed. With fewer than `answers` on a side nothing is claimed.
    """

    index: float = 0.25
    fall: float = 0.05
    answers: int = 200


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of `recent` answers against those of the `reference`; None where nothing can be claimed.

    `mix` and `distance` are stability indices, `acceptance` is the largest fall of a task's acceptance rate, negative
    if all rose. `findings` say what drifted and how, with a sentence for each; there are none if nothing did.
    """

    reference: int
    recent: int
    mix: float | None = None
    distance: float | None = None
    acceptance: float | None = None
    findings: tuple[str, ...] = msgspec.field(default=(), name="found")

    @property
    def drifted(self) -> bool:
        return bool(self.findings)

    @property
    def claimed(self) -> bool:
        """False if there were too few answers for any figure."""
        return any(figure is not None for figure in (self.mix, self.distance, self.acceptance))

    @property
    def verdict(self) -> str:
        if self.findings:
            return "; ".join(self.findings)
        if not self.claimed:
            return "too few answers"
        indices = [index for index in (self.mix, self.distance) if index is not None]
        return "some change" if max(indices, default=0.0) >= STABLE else "stable"


def distances(centroids: TaskCentroids, embeddings: Matrix) -> list[float]:
    """1 less the cosine of every embedding [n, d] with the nearest centroid."""
    nearest: list[float] = (1 - centroids.cosines(embeddings).max(1)).tolist()
    return nearest


def measure(reference: Sequence[Observation], recent: Sequence[Observation], limits: Limits | None = None) -> Drift:
    """Compare recent answers with those of the reference.

    A figure is measured on the answers that have what it needs: a prior, a distance, or tokens of a draft.
    """
    limits = limits or Limits()
    mix, mixed = _mix(reference, recent, limits)
    distance, farther = _distance(reference, recent, limits)
    acceptance, fallen = _acceptance(reference, recent, limits)
    return Drift(
        reference=len(reference),
        recent=len(recent),
        mix=mix,
        distance=distance,
        acceptance=acceptance,
        findings=(*mixed, *farther, *fallen),
    )


def stability_index(reference: _Counts, recent: _Counts) -> _Counts:
    """The share of each bin in the index, for counts [bins] of both sides; the sum is the index."""
    p, q = (_shares(counts) for counts in (reference, recent))
    terms: _Counts = (q - p) * np.log(q / p)
    return terms


def _shares(counts: _Counts) -> _Counts:
    smoothed: _Counts = (counts + SMOOTHING) / (counts + SMOOTHING).sum()
    return smoothed


def _mix(
    reference: Sequence[Observation], recent: Sequence[Observation], limits: Limits
) -> tuple[float | None, list[str]]:
    sides = [[answer.prior for answer in side if answer.prior] for side in (reference, recent)]
    if min(map(len, sides)) < limits.answers:
        return None, []
    tasks = sorted({task for side in sides for prior in side for task in prior})
    before, after = (np.array([sum(prior.get(task, 0.0) for prior in side) for task in tasks]) for side in sides)
    parts = stability_index(before, after)
    index = float(parts.sum())
    if index <= limits.index:
        return index, []
    movers = np.argsort(-parts)[:_NAMED]
    moved = [f"`{tasks[at]}` {before[at] / before.sum():.0%} to {after[at] / after.sum():.0%}" for at in movers]
    return index, [f"task mix {index:.2f}: {', '.join(moved)}"]


def _distance(
    reference: Sequence[Observation], recent: Sequence[Observation], limits: Limits
) -> tuple[float | None, list[str]]:
    before, after = (
        np.array([answer.distance for answer in side if answer.distance is not None]) for side in (reference, recent)
    )
    if min(len(before), len(after)) < limits.answers:
        return None, []
    edges = np.unique(np.quantile(before, np.arange(1, BINS) / BINS))  # equal prompts may share an edge
    index = float(stability_index(*(_histogram(side, edges) for side in (before, after))).sum())
    if index <= limits.index:
        return index, []
    middle = f"median {np.median(before):.2f} to {np.median(after):.2f}"
    return index, [f"distance to the nearest task {index:.2f}: {middle}"]


def _histogram(values: _Counts, edges: _Counts) -> _Counts:
    return np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1).astype(np.float64)


def _acceptance(
    reference: Sequence[Observation], recent: Sequence[Observation], limits: Limits
) -> tuple[float | None, list[str]]:
    before, after = (_tokens_by_task(side) for side in (reference, recent))
    if min(sum(map(len, side.values())) for side in (before, after)) < limits.answers:
        return None, []
    common = [task for task in before if min(len(before[task]), len(after.get(task, ()))) >= LEAST_OF_TASK]
    falls = {task: _fall(before[task], after[task]) for task in common}
    fallen = [
        f"acceptance of `{task}` {_rate(before[task]):.2f} to {_rate(after[task]):.2f}: "
        f"a fall of {fall.value:.2f} ({fall.low:.2f} to {fall.high:.2f})"
        for task, fall in sorted(falls.items(), key=lambda item: -item[1].value)
        if fall.low > limits.fall
    ]
    return max((fall.value for fall in falls.values()), default=None), fallen


def _tokens_by_task(side: Sequence[Observation]) -> dict[str, _Counts]:
    """Tokens accepted and proposed by each answer of a task that a draft proposed for: [answers, 2]."""
    by_task: dict[str, list[tuple[int, int]]] = {}
    for answer in side:
        if answer.proposed:
            by_task.setdefault(answer.task, []).append((answer.accepted, answer.proposed))
    return {task: np.array(tokens, np.float64) for task, tokens in by_task.items()}


def _fall(before: _Counts, after: _Counts) -> Estimate:
    """The fall of accepted / proposed; both sides are drawn together, as answers of one sample."""
    size = len(before)
    return estimate(size + len(after), lambda draws: _rates(draws[:, :size] @ before) - _rates(draws[:, size:] @ after))


def _rate(tokens: _Counts) -> float:
    return float(tokens[:, 0].sum() / tokens[:, 1].sum())


def _rates(sums: _Counts) -> _Counts:
    rates: _Counts = sums[:, 0] / np.maximum(sums[:, 1], 1)  # a sample without any answer of a side has no tokens
    return rates
