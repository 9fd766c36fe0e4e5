"""What the drafts of the study bring: tokens a second in times plain decoding, from replays and measured costs.

    speed = tokens / the least time, in plain passes, of drafting 0, 1, ... 6 tokens for a pass

The number is one for all answers of a task, once for those that are sampled and once for the others: a service finds
it by itself.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch

from core.confidence_intervals import Array, Estimate, estimate
from core.model.base import Model, Rows
from core.model.causal_lm import load_draft_model, load_model
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary
from core.model.pages import PAGE_SIZE
from core.replay.replay import NUM_SPECULATIVE_TOKENS, AcceptanceCounts, Terms, replay
from core.replay.speed import DraftCosts
from core.replay.vocabulary_size import seconds_per_token
from core.traces.store import Trace
from tests.bench.task_drafts_study import GENERAL, HEADS, SINGLES, SMALL, Case, Head, Place, Shape, Study
from train_jobs.drafts.candidates import TASK

_ROWS = 1 + NUM_SPECULATIVE_TOKENS  # of a pass, at most
_TURNS, _CACHED, _SESSION = 15, 128, 0


class Costs(msgspec.Struct, frozen=True):
    """In plain passes: of a pass over 1, 2, ... rows, and of a drafted token by shape of the draft.

    The latter are four: greedily with `SMALL` ids and with `whole`, then sampled with as many.
    """

    passes: list[float]
    tokens: dict[str, list[float]]
    whole: int

    def token(self, shape: Shape, ids: int, *, sampled: bool) -> float:
        """Of a draft of this shape with so many ids: on the line through the two that were measured."""
        small, whole = self.tokens[str(shape)][2 * sampled :][:2]
        return small + (whole - small) * (ids - SMALL) / max(1, self.whole - SMALL)


def measure(target: Path, drafts: Mapping[Shape, Path], num_valid: int) -> Costs:
    """Medians of ratios that were taken in turns, so that other work on the machine disturbs both sides alike."""
    model = load_model(target, dtype=torch.bfloat16, num_pages=-(-ModelConfig.load(target).context // PAGE_SIZE))
    heads = {shape: DraftVocabulary.load(draft) for shape, draft in drafts.items()}
    whole = len(next(iter(heads.values())).ids)
    models = {
        (shape, size): load_draft_model(
            drafts[shape],
            drafts[shape],
            dtype=torch.bfloat16,
            target=target,
            vocabulary=DraftVocabulary.from_ids(head.ids[:size].tolist(), head.target_size),
        )
        for shape, head in heads.items()
        for size in (SMALL, whole)
    }
    ratios: list[list[float]] = []
    for _ in range(_TURNS):
        passes = _passes(model)
        tokens = [
            seconds_per_token(models[shape, size], num_valid, time.perf_counter, sampled=sampled)
            for shape in drafts
            for sampled in (False, True)
            for size in (SMALL, whole)
        ]
        ratios.append([seconds / passes[0] for seconds in (*passes, *tokens)])
    medians = [statistics.median(column) for column in zip(*ratios, strict=True)]
    by_shape = {str(shape): medians[_ROWS + 4 * place :][:4] for place, shape in enumerate(drafts)}
    return Costs(medians[:_ROWS], by_shape, whole)


def _passes(model: Model) -> list[float]:
    """Seconds of a pass over 1, 2, ... rows: the quickest of three."""
    quickest = [math.inf] * _ROWS
    model.open(_SESSION)
    model.forward([Rows(_SESSION, [0] * _CACHED, 0)])
    for _ in range(3):
        for rows in range(1, _ROWS + 1):
            began = time.perf_counter()
            model.forward([Rows(_SESSION, [0] * rows, rows)]).argmax(-1).tolist()
            quickest[rows - 1] = min(quickest[rows - 1], time.perf_counter() - began)
            model.rollback(_SESSION, _CACHED)
    model.close(_SESSION)
    return quickest


def times(hit: str, trace: Trace, terms: Terms, costs: Costs, token: float) -> tuple[AcceptanceCounts, list[float]]:
    """The counts with as many tokens drafted as the terms allow, and the times with none, one, two, ... drafted."""
    counts = replay([mark == "1" for mark in hit], trace, terms, DraftCosts(token, tuple(costs.passes[1:])))
    return counts, [float(counts.tokens), *counts.times]


class Arm(NamedTuple):
    """One way to draft, on all answers in order, summed over seeds; counts are those with six tokens drafted."""

    ids: float  # in the head, on average
    times: Array
    tokens: Array
    passes: Array
    accepted: Array
    proposed: Array

    @classmethod
    def summed(cls, parts: Sequence[Arm]) -> Arm:
        """Of the same answers with several seeds."""
        ids = statistics.fmean(part.ids for part in parts)
        return cls(ids, *(np.sum(column, 0) for column in zip(*(part[1:] for part in parts), strict=True)))

    def wrong_in(self, share: float, wrong: Arm) -> Arm:
        """This one for most answers, and the wrong draft for a share of them."""
        blend = (1 - share) * self.times + share * wrong.times
        return self._replace(times=blend)


def ratio(above: Array, below: Array) -> Estimate:
    """The ratio of sums over prompts."""
    return estimate(len(above), lambda weights: (weights @ above) / (weights @ below))


class Outcome(NamedTuple):
    """The arms of one number of tasks and one shape, on answers of the tasks and on general traffic."""

    tasks: int
    shape: Shape
    seeds: int
    token: float  # cost of a sampled one with the whole head, in plain passes
    arms: dict[str, Arm]
    wrong: dict[str, Arm]  # task drafts, each answer with that of another task
    general: dict[str, Arm]
    sampled: Array  # whether each answer has a temperature above 0
    by_seed: list[float]  # gain of the best task draft over the best single one

    @property
    def best_single(self) -> str:
        return min((name for name in self.arms if not name.startswith(TASK)), key=self._time)

    @property
    def best_task(self) -> str:
        return min((name for name in self.arms if name.startswith(TASK)), key=self._time)

    def over_single(self, arm: Arm, answers: Array | None = None) -> Estimate:
        """The speed of an arm in times that of the best single draft, on these answers."""
        single, subset = self.arms[self.best_single], slice(None) if answers is None else answers.astype(bool)
        return ratio(single.times[subset], arm.times[subset])

    @property
    def break_even(self) -> float:
        """The share of answers that may get the wrong task's draft before the best single one is as quick."""
        right, wrong = (float(arms[self.best_task].times.sum()) for arms in (self.arms, self.wrong))
        single = self._time(self.best_single)
        return min(1.0, max(0.0, (single - right) / (wrong - right))) if wrong > right else float(single > right)

    def _time(self, name: str) -> float:
        return float(self.arms[name].times.sum())


def outcome(study: Study, cases: Sequence[Case], costs: Costs) -> Outcome:
    """Of cases that differ in their seed alone."""
    case = cases[0]
    seeds = [_Seed(study, of_seed, costs) for of_seed in cases]
    arms, wrong, general = (
        {name: Arm.summed([arms[name] for arms in of]) for name in of[0]}
        for of in ([seed.arms for seed in seeds], [seed.wrong for seed in seeds], [seed.general for seed in seeds])
    )
    tasks = (traces for name, traces in study.judging(case).items() if name != GENERAL)
    sampled = np.array([trace.params.temperature > 0 for trace in chain.from_iterable(tasks)], np.float64)
    token = costs.token(case.shape, costs.whole, sampled=True)
    joint = Outcome(case.tasks, case.shape, len(cases), token, arms, wrong, general, sampled, [])
    gains = (float(seed.arms[joint.best_single].times.sum() / seed.arms[joint.best_task].times.sum()) for seed in seeds)
    return joint._replace(by_seed=list(gains))


class _Part(NamedTuple):
    """Answers, and where a draft hits them."""

    draft: str
    marks: Sequence[str]
    traces: Sequence[Trace]


class _Seed:
    """The arms of one case."""

    def __init__(self, study: Study, case: Case, costs: Costs) -> None:
        self._study, self._case, self._costs = study, case, costs
        hits, judging = study.hits(case), study.judging(case)
        general = judging.pop(GENERAL)
        names = [f"{TASK}-{name}" for name in judging]
        others = [*names[1:], names[0]]  # each is judged by the answers of the task before it
        ends = list(accumulate(map(len, judging.values()), initial=0))
        self.arms, self.wrong, self.general = dict[str, Arm](), dict[str, Arm](), dict[str, Arm]()
        for head in HEADS:
            for name in SINGLES:
                marks = hits[name][head]["right"]
                spans = zip(judging.values(), pairwise(ends), strict=True)
                by_task = [[_Part(name, marks[first:last], traces)] for traces, (first, last) in spans]
                self.arms[_label(name, head)] = self._arm(head, by_task)
                if general:
                    parts = [_Part(name, hits[name][head]["general"], general)]
                    self.general[_label(name, head)] = self._arm(head, [parts])
            places: tuple[tuple[dict[str, Arm], Place, list[str]], ...] = (
                (self.arms, "right", names),
                (self.wrong, "wrong", others),
            )
            for arms, place, drafts in places:
                marks_of = [hits[draft][head][place] for draft in drafts]
                of_tasks = zip(drafts, marks_of, judging.values(), strict=True)
                arms[_label(TASK, head)] = self._arm(head, [[_Part(*part)] for part in of_tasks])
            if general:
                guesses = [
                    _Part(draft, hits[draft][head].get("general", []), general[place :: len(names)])
                    for place, draft in enumerate(names)
                ]
                self.general[_label(TASK, head)] = self._arm(head, [guesses])

    def _arm(self, head: Head, groups: Sequence[Sequence[_Part]]) -> Arm:
        """The number of tokens drafted is chosen for each group."""
        columns = [self._group(head, group) for group in groups]
        ids = statistics.fmean(len(self._study.head(self._case, part.draft, head)) for part in chain(*groups))
        return Arm(ids, *(np.concatenate(column) for column in zip(*columns, strict=True)))

    def _group(self, head: Head, parts: Sequence[_Part]) -> list[Array]:
        replays, kinds = [], list[bool]()
        for draft, marks, traces in parts:
            ids = len(self._study.head(self._case, draft, head))
            for mark, trace in zip(marks, traces, strict=True):
                kinds.append(trace.params.temperature > 0)
                token = self._costs.token(self._case.shape, ids, sampled=kinds[-1])
                replays.append(times(mark, trace, self._study.terms, self._costs, token))
        by_length, sampled = np.array([each for _, each in replays]), np.array(kinds)
        least = np.zeros(len(replays))
        for kind in (sampled, ~sampled):
            if kind.any():
                least[kind] = by_length[kind][:, by_length[kind].sum(0).argmin()]
        tokens, passes, proposed, accepted = np.array([each[:4] for each, _ in replays], np.float64).T
        return [least, tokens, passes, accepted, proposed]


def _label(name: str, head: Head) -> str:
    return name if head == "whole" else f"{name}, {head} head"
