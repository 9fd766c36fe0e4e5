"""Stage 5, evaluate: every candidate on held-out prompts, and the promotion of one of them for each slot.

`core.replay.promotion` decides on the promotion split, by speedup. The figures of the report come from the test split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from core.bundle.store import Winner
from core.draft_key import GENERAL
from core.replay.promotion import Promotion, TaskPromotion, evidence, promote, promote_tasks
from core.replay.replay import AcceptanceCounts, total
from train_jobs.cluster.progress import Progress
from train_jobs.config import RetrainConfig
from train_jobs.drafts.candidates import BASE, CONTINUED, LIVE, MIXED, SINGLE_DRAFTS, TASK, draft_name
from train_jobs.drafts.costs import measured_costs
from train_jobs.drafts.scoring import ScoringJob, score_all
from train_jobs.drafts.training_runs import base_runs
from train_jobs.work.artefacts import COSTS, WINNERS, Split, TaskAssignment, Winners, write_json
from train_jobs.work.cached_step import settings_of
from train_jobs.work.workspace import Workspace

NEEDS = ("align",)
_UNSEEN = "no held-out prompt is of this task, so its own draft could not be compared with {}, the best single draft"


def inputs(config: RetrainConfig) -> list[object]:
    return [settings_of(config.evaluate), "speedup"]  # counts of earlier versions have no times


def run(work: Workspace, progress: Progress) -> None:
    """Measure what drafting costs, score all candidates, then promote one for every slot."""
    directory, jobs = work.steps["evaluate"].start(), list(candidate_jobs(work))
    with progress.stage("evaluate: costs", 1) as report:
        costs = measured_costs(work.config, (job.draft for job in jobs), directory / COSTS)
        report("costs", 1, 1, "")
    score_all(work, jobs, costs, progress)
    winners = Judge(work, {job.name: job.draft for job in jobs}).winners()
    write_json(directory / WINNERS, winners)


def candidate_jobs(work: Workspace) -> Iterator[ScoringJob]:
    """Every draft on all held-out prompts, but adapters of further seeds only on those of their own task."""
    tasks, drafts = work.tasks(), work.drafts()
    first, *others = work.config.align.seeds
    everything, fitted = _numbers(tasks, None), [run.name for run in base_runs(work)]
    yield ScoringJob(GENERAL, None, everything)
    for slot, directory in work.live().slots.items():
        yield ScoringJob(draft_name(LIVE, slot, None, 0), directory, everything)
    for seed in (first, *others):
        for kind in (BASE, CONTINUED, MIXED):
            name = draft_name(kind, GENERAL, None, seed)
            yield ScoringJob(name, None if kind == BASE and name not in fitted else drafts.draft(name), everything)
        for task, slot in enumerate(tasks.routed):
            name = draft_name(TASK, slot, task, seed)
            yield ScoringJob(name, drafts.draft(name), everything if seed == first else _numbers(tasks, task))


def _numbers(tasks: TaskAssignment, task: int | None) -> dict[Split, list[int]]:
    return {split: tasks.numbers(split, task) for split in ("promotion", "test")}


class Judge:
    """Decides who serves each slot, by the promotion split."""

    def __init__(self, work: Workspace, drafts: Mapping[str, Path | None]) -> None:
        self._drafts = drafts
        self._seed = work.config.align.seeds[0]
        self._scores = work.scores()
        self._tasks = work.tasks()
        self._live = work.live()
        self._prompts = [trace.prompt_ids for trace in work.traces("promotion")]

    def winners(self) -> Winners:
        """The best single draft takes the general slot; a task's own draft must beat it on held-out prompts."""
        kinds = [kind for kind in SINGLE_DRAFTS if self._name(kind, GENERAL, None) in self._drafts]
        single = promote({kind: self._counts(kind, GENERAL, None) for kind in kinds}, self._prompts)
        general = self._winner(single, GENERAL, None, GENERAL, kinds)
        routed = {slot: task for task, slot in enumerate(self._tasks.routed)}
        held_out = {slot: task for slot, task in routed.items() if self._numbers(task)}
        challengers = {slot: self._challenger(slot, task) for slot, task in held_out.items()}
        gains = {
            slot: evidence(
                self._counts(challengers[slot], slot, task),
                self._counts(single.name, GENERAL, task),
                self._prompts_of(task),
                self._live.evidence.get(slot),
            )
            for slot, task in held_out.items()
        }
        judged = promote_tasks(gains, single.name)
        unseen = TaskPromotion(promoted=False, reason=_UNSEEN.format(single.name))
        tasks = dict[str, Winner]()
        for slot, task in routed.items():
            promoted, reason = judged.get(slot, unseen)
            promotion = Promotion(challengers[slot] if promoted else single.name, reason)
            rivals = [*kinds, *([LIVE] if slot in self._live.slots else []), TASK]
            owner = slot if promoted else GENERAL
            tasks[slot] = self._winner(promotion, slot, task, owner, list(dict.fromkeys(rivals)))
        earlier = {slot: evidence for slot, evidence in self._live.evidence.items() if slot in routed}
        winners = Winners(tasks=tasks, general=general, evidence=earlier | gains)
        return msgspec.structs.replace(winners, acceptance=self._acceptance(winners))

    def _challenger(self, slot: str, task: int) -> str:
        """The task's new adapter, or the one in service if that is better than the new one beyond doubt."""
        if slot not in self._live.slots:
            return TASK
        counts = {kind: self._counts(kind, slot, task) for kind in (TASK, LIVE)}
        return promote(counts, self._prompts_of(task)).name

    def _winner(self, promotion: Promotion, slot: str, task: int | None, owner: str, kinds: Sequence[str]) -> Winner:
        """`owner` is the slot that the promoted candidate is of: this one, or `general`."""
        directory = self._drafts[self._name(promotion.name, owner, task)]
        compared = kinds if self._numbers(task) else ()
        totals = {kind: total(self._counts(kind, slot if kind in (TASK, LIVE) else GENERAL, task)) for kind in compared}
        return Winner(
            directory=directory,
            decision=promotion.name,
            reason=promotion.reason + self._origin(slot, promotion.name),
            scores={kind: counts.speedup for kind, counts in totals.items()},
        )

    def _origin(self, slot: str, kind: str) -> str:
        """What a draft was trained on from, if that was in service."""
        if self._live.base is None or kind in (GENERAL, LIVE):
            return ""
        what = "its adapter" if kind == TASK and slot in self._live.adapters else "the base"
        return f"; trained on from {what} in bundle {self._live.version}"

    def _acceptance(self, winners: Winners) -> dict[str, dict[str, float]]:
        """The acceptance_rate of every slot's draft on the prompts of every task that has some, and on all."""
        tasks: dict[str, int | None] = {GENERAL: None} | {slot: task for task, slot in enumerate(self._tasks.routed)}
        by_task = {name: task for name, task in tasks.items() if self._numbers(task)}
        serving = {slot: self._serving(winners, slot) for slot in winners.slots}
        return {
            slot: {
                name: total(self._scores.of(draft, "promotion", self._numbers(task))).acceptance_rate
                for name, task in by_task.items()
            }
            for slot, draft in serving.items()
        }

    def _serving(self, winners: Winners, slot: str) -> str:
        """Name of the draft that serves a slot."""
        owner = winners.owner(slot)
        task = self._tasks.names.index(owner) if owner != GENERAL else None
        return self._name(winners.slots[owner].decision, owner, task)

    def _counts(self, kind: str, slot: str, task: int | None) -> list[AcceptanceCounts]:
        """On the promotion prompts of a task; None stands for all."""
        return self._scores.of(self._name(kind, slot, task), "promotion", self._numbers(task))

    def _numbers(self, task: int | None) -> list[int]:
        return self._tasks.numbers("promotion", task)

    def _prompts_of(self, task: int) -> list[tuple[int, ...]]:
        return [self._prompts[number] for number in self._numbers(task)]

    def _name(self, kind: str, slot: str, task: int | None) -> str:
        return draft_name(kind, slot, task, self._seed)
