"""The inputs of every stage: a change reaches the stages that depend on it and no others."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from train_jobs.config import RetrainConfig
from train_jobs.stages import STAGES, open_workspace, stage
from train_jobs.work.workspace import Workspace


def work(directory: Path, **sections: Any) -> Workspace:
    settings: dict[str, Any] = {
        "target": {"model": "family:target"},
        "draft": "family:draft",
        "work": directory / "work",
        "bundles": directory / "bundles",
        "collect": {"files": ["prompts.jsonl"]},
    }
    return open_workspace(RetrainConfig.model_validate(settings | sections))


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"align": {"ranks": [8]}}, {"align", "evaluate", "publish", "report"}),
        ({"router": {"steps": 5}}, {"router", "publish", "report"}),
        ({"collect": {"files": ["prompts.jsonl"], "most": 61}}, set(STAGES)),
        ({"align": {"worker": {"num_cpus": 2}}}, set()),
    ],
)
def test_a_change_reaches_the_stages_that_depend_on_it(tmp_path: Path, changes: Any, again: set[str]) -> None:
    before, after = work(tmp_path).steps, work(tmp_path, **changes).steps
    assert {name for name in STAGES if before[name].key != after[name].key} == again


def test_earlier_stages_that_are_not_done_are_listed(tmp_path: Path) -> None:
    made = work(tmp_path)
    assert made.unfinished("align") == ["collect", "partition"]
    made.steps["collect"].start()
    made.steps["collect"].finish(1.0)
    assert made.unfinished("align") == ["partition"]


def test_a_worker_gets_the_keys_without_reading_the_models_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = work(tmp_path)
    for name in STAGES:
        monkeypatch.delattr(stage(name), "fingerprint", raising=False)
    sent = pickle.loads(pickle.dumps(made))
    assert {name: step.key for name, step in sent.steps.items()} == {
        name: step.key for name, step in made.steps.items()
    }
