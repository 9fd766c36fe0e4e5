"""Who serves each slot: the best single draft, or a task's own where that is better than it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.bundle.manifest import Evidence
from core.draft_key import GENERAL
from core.replay.replay import AcceptanceCounts
from train_jobs.drafts.candidates import BASE, CONTINUED, LIVE, MIXED, TASK, draft_name
from train_jobs.stages.evaluate import Judge
from train_jobs.work.artefacts import LiveDrafts, Scores, TaskAssignment
from train_jobs.work.workspace import Workspace

TASKS = ("math", "code")
PER_TASK = 40
OLD = Path("old")


class _Tasks:
    """Prompts of two tasks, one after the other. Others have none."""

    def __init__(self, names: tuple[str, ...] = TASKS) -> None:
        self.names = self.routed = names

    def numbers(self, _split: str, task: int | None) -> list[int]:
        every = range(len(TASKS) * PER_TASK)
        return [number for number in every if task is None or number // PER_TASK == task]


def accepting(accepted: int) -> AcceptanceCounts:
    """As much quicker than plain decoding as tokens are accepted of ten."""
    return AcceptanceCounts(10 + accepted, 5, 10, accepted, (10.0,))


def judge(directory: Path, live: LiveDrafts, names: tuple[str, ...] = TASKS, **rates: dict[int, int]) -> Judge:
    """By draft and task, the tokens accepted of ten on every prompt."""
    scores, directories = Scores(directory), dict[str, Path | None]()
    for name, of_task in rates.items():
        counts = {
            number: accepting(of_task[number // PER_TASK] - number % 2)
            for number in _Tasks().numbers("promotion", None)
        }
        scores.keep(name.replace("_", "-"), {"promotion": counts})
        directories[name.replace("_", "-")] = None if name == GENERAL else Path(name)
    directories |= {draft_name(LIVE, slot, None, 0): path for slot, path in live.slots.items()}
    work = SimpleNamespace(
        config=SimpleNamespace(align=SimpleNamespace(seeds=(0,))),
        scores=lambda: scores,
        tasks=lambda: cast("TaskAssignment", _Tasks(names)),
        live=lambda: live,
        traces=lambda _: [SimpleNamespace(prompt_ids=(number,)) for number in range(len(TASKS) * PER_TASK)],
    )
    return Judge(cast("Workspace", work), directories)


SINGLE: dict[str, Any] = {GENERAL: {0: 2, 1: 2}, "base_seed_0": {0: 5, 1: 5}, "continued_seed_0": {0: 5, 1: 5}}
SINGLE |= {"mixed_seed_0": {0: 5, 1: 5}}


def test_a_task_gets_its_own_draft_only_where_that_is_better(tmp_path: Path) -> None:
    made = judge(tmp_path, LiveDrafts(), **SINGLE, task_0_seed_0={0: 8, 1: 3}, task_1_seed_0={0: 1, 1: 5})
    winners = made.winners()
    assert (winners.general.decision, winners.tasks["math"].decision) == (BASE, TASK)
    assert winners.tasks["code"].decision == BASE
    assert winners.tasks["code"].directory == winners.general.directory == Path("base_seed_0")
    assert {slot: winners.owner(slot) for slot in (GENERAL, *TASKS)} == {
        GENERAL: GENERAL,
        "math": "math",
        "code": GENERAL,
    }
    assert winners.tasks["math"].scores[TASK] == pytest.approx(1.75)
    assert winners.acceptance["math"] == pytest.approx({GENERAL: 0.5, "math": 0.75, "code": 0.25})
    assert winners.acceptance["code"] == pytest.approx({GENERAL: 0.45, "math": 0.45, "code": 0.45})


def test_where_the_live_single_draft_stays_a_task_without_a_better_one_gets_it_and_not_its_old_adapter(
    tmp_path: Path,
) -> None:
    """All these drafts are called `live`; only the general slot's was found to be the best single draft."""
    live = LiveDrafts("1f", slots={GENERAL: OLD / "general", "math": OLD / "math", "code": OLD / "code"})
    made = judge(
        tmp_path,
        live,
        **SINGLE,
        live_general={0: 7, 1: 7},
        live_math={0: 3, 1: 3},
        live_code={0: 9, 1: 9},
        task_0_seed_0={0: 7, 1: 3},
        task_1_seed_0={0: 1, 1: 4},
    )
    winners = made.winners()
    assert winners.general.directory == winners.tasks["math"].directory == OLD / "general"
    assert (winners.tasks["code"].decision, winners.tasks["code"].directory) == (LIVE, OLD / "code")
    assert winners.acceptance["math"]["math"] == pytest.approx(0.65)
    assert winners.acceptance["code"]["code"] == pytest.approx(0.85)


def test_the_controls_can_take_the_general_slot(tmp_path: Path) -> None:
    rates = SINGLE | {"mixed_seed_0": {0: 7, 1: 7}, "continued_seed_0": {0: 6, 1: 6}}
    made = judge(tmp_path, LiveDrafts(), **rates, task_0_seed_0={0: 6, 1: 6}, task_1_seed_0={0: 6, 1: 6})
    assert made.winners().general.decision == MIXED
    assert CONTINUED in made.winners().general.scores


def test_a_task_without_held_out_prompts_gets_the_best_single_draft_and_keeps_its_evidence(tmp_path: Path) -> None:
    """Even where its adapter is live: nothing shows that it is better."""
    seen = {name: Evidence(gain=0.02, variance=1e-4, prompts=70) for name in ("law", "vanished")}
    live = LiveDrafts("1f", slots={"law": OLD / "law"}, evidence=seen)
    made = judge(
        tmp_path,
        live,
        (*TASKS, "law"),
        **SINGLE,
        live_law={0: 9, 1: 9},
        task_0_seed_0={0: 8, 1: 3},
        task_1_seed_0={0: 1, 1: 5},
        task_2_seed_0={0: 9, 1: 9},
    )
    winners = made.winners()
    law = winners.tasks["law"]
    assert (law.decision, law.directory, law.scores) == (BASE, winners.general.directory, {})
    assert law.reason == (
        "no held-out prompt is of this task, so its own draft could not be compared with base, the best single draft"
    )
    assert winners.tasks["math"].decision == TASK
    assert winners.evidence.keys() == {*TASKS, "law"}
    assert winners.evidence["law"] == seen["law"]
    assert all(rates.keys() == {GENERAL, *TASKS} for rates in winners.acceptance.values())
