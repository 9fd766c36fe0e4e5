"""The plans of the align stage: which drafts are trained, from what, on which traces, for how many steps."""

from __future__ import annotations

from pathlib import Path

import msgspec

from core.distill.alignment import AlignmentRecipe
from core.draft_key import GENERAL
from core.model.loader import lora_rank
from core.model_names import locate
from train_jobs.config import AlignConfig
from train_jobs.drafts.candidates import BASE, CONTINUED, MIXED, TASK, draft_name, trial_name
from train_jobs.work.workspace import Workspace


class TrainingRun(msgspec.Struct, frozen=True, kw_only=True):
    """One draft to train from the model `draft`: LoRA of `rank`, or a full fine-tune if that is None.

    LoRA continues from an earlier `adapter`, if there is one. `train` and `stop` are numbers of traces in those splits;
    the `train` traces lie in the directory `source`.
    """

    name: str
    seed: int
    draft: str
    rank: int | None = None
    loss: str
    adapter: Path | None = None
    steps: int
    evaluate_every: int
    source: Path
    train: list[int]
    stop: list[int]

    def recipe(self, align: AlignConfig) -> AlignmentRecipe:
        return AlignmentRecipe(
            rank=self.rank,
            loss=self.loss,
            learning_rate=align.learning_rate,
            steps=self.steps,
            budget=align.budget,
            evaluate_every=self.evaluate_every,
            seed=self.seed,
            products=align.products,
        )


def base_runs(work: Workspace) -> list[TrainingRun]:
    """The base of every seed: the draft, or the base that is live, trained on the prompts of all tasks."""
    steps = work.config.align.base_steps
    if steps == 0:
        return []
    start = str(work.live().base or locate(work.config.draft))
    steps = steps or _steps_together(work)
    return [_on_all_tasks(work, BASE, seed, start, None, steps) for seed in work.config.align.seeds]


def rank_trials(work: Workspace) -> list[TrainingRun]:
    """With the first seed, every task's adapter at every rank; none where an earlier adapter settles the rank."""
    seed, tasks = work.config.align.seeds[0], range(len(work.tasks().routed))
    return [
        msgspec.structs.replace(run, name=trial_name(run.name, rank), rank=rank)
        for run in (_adapter(work, task, seed) for task in tasks)
        for rank in work.config.align.ranks
        if run.adapter is None and len(work.config.align.ranks) > 1
    ]


def specialised_runs(work: Workspace) -> list[TrainingRun]:
    """From every base: the controls, which take longest, then the adapters of all tasks."""
    seeds, tasks = work.config.align.seeds, range(len(work.tasks().routed))
    rank, steps = work.config.align.ranks[-1], _steps_together(work)
    controls = ((kind, seed) for seed in seeds for kind in (CONTINUED, MIXED))
    return [
        *(
            _on_all_tasks(work, kind, seed, str(work.base(seed)), rank if kind == MIXED else None, steps)
            for kind, seed in controls
        ),
        *(_adapter(work, task, seed) for seed in seeds for task in tasks),
    ]


def planned_runs(work: Workspace) -> list[TrainingRun]:
    """All runs whose results are candidates."""
    return [*base_runs(work), *specialised_runs(work)]


def _on_all_tasks(work: Workspace, kind: str, seed: int, draft: str, rank: int | None, steps: int) -> TrainingRun:
    """It is evaluated as often as an adapter."""
    align, tasks = work.config.align, work.tasks()
    return TrainingRun(
        name=draft_name(kind, GENERAL, None, seed),
        seed=seed,
        draft=draft,
        rank=rank,
        loss=align.loss,
        steps=steps,
        evaluate_every=max(1, align.evaluate_every * steps // align.steps),
        source=work.collected().directory,
        train=sorted(number for task in range(len(tasks.names)) for number in _learnt(work, task)),
        stop=tasks.numbers("stop", None),
    )


def _steps_together(work: Workspace) -> int:
    """Steps of the adapters of all tasks."""
    return work.config.align.steps * len(work.tasks().names)


def _adapter(work: Workspace, task: int, seed: int) -> TrainingRun:
    align, tasks, live = work.config.align, work.tasks(), work.live()
    slot = tasks.names[task]
    earlier = live.adapters.get(slot)
    return TrainingRun(
        name=draft_name(TASK, slot, task, seed),
        seed=seed,
        draft=str(work.base(seed)),
        rank=lora_rank(earlier) if earlier else work.drafts().ranks().get(slot, align.ranks[-1]),
        adapter=earlier,
        loss=align.loss,
        steps=align.steps,
        evaluate_every=align.evaluate_every,
        source=work.collected().directory,
        train=_learnt(work, task),
        stop=tasks.numbers("stop", task),
    )


def _learnt(work: Workspace, task: int) -> list[int]:
    """The traces that a task's adapter learns from."""
    return work.tasks().numbers("train", task)[: work.config.align.max_pairs]
