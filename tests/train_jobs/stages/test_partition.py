"""Tasks that the live bundle knows keep their names, and with them their drafts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.bundle.manifest import Evidence, Manifest
from core.bundle.store import Winner, publish
from core.draft_key import GENERAL
from core.tasks.embedding import Matrix, unit
from core.tasks.identity import TaskChange
from tests.core.bundle.bundles import adapter
from tests.train_jobs.report.invented import COSTS
from train_jobs.config import RetrainConfig
from train_jobs.stages import open_workspace, partition
from train_jobs.stages.align import live_drafts
from train_jobs.work.artefacts import SPLITS, Split
from train_jobs.work.models import model_pair
from train_jobs.work.workspace import Workspace

AXES = {"maths": 0, "chemistry": 1, "code": 2}
FIRST = {"maths": "add the numbers carefully", "chemistry": "balance this reaction"}
LATER = {"code": "write some python", "chemistry": "molecules react somehow", "maths": "sums of dollars"}


def partitioned(directory: Path, words: Mapping[str, str], **changes: Any) -> Workspace:
    """A work directory up to its partition: 50 prompts of each task, with these words."""
    settings: dict[str, Any] = {
        "target": {"model": "family:target"},
        "draft": "family:draft",
        "work": directory / "-".join(words),
        "bundles": directory / "bundles",
        "collect": {"files": ["prompts.jsonl"]},
        "partition": {"embedder": "one", "k": len(words), "max_k": 2},
        "align": {"base_steps": 0},
    }
    work = open_workspace(RetrainConfig.model_validate(settings | changes))
    work.steps["partition"].start()
    texts: dict[Split, list[str]] = {
        split: [f"{text} {number}" for text in words.values() for number in range(50)] for split in SPLITS
    }
    partition.partition_prompts(work, texts, np.concatenate([vectors(words) for _ in SPLITS]))
    work.steps["partition"].finish(1.0)
    return work


def vectors(words: Mapping[str, str]) -> Matrix:
    centres = np.repeat(np.eye(16)[[AXES[task] for task in words]], 50, axis=0)
    return unit(centres + 0.05 * np.random.default_rng(len(words)).standard_normal(centres.shape))


def published(work: Workspace, directory: Path, **changes: Any) -> Manifest:
    """A bundle with an adapter for each task of the partition."""
    centroids = directory / "centroids"
    work.centroids().save(centroids)
    names = work.tasks().names
    winners = {
        name: Winner(directory=adapter(directory / name, number), decision="task", reason="better")
        for number, name in enumerate(names)
    }
    general = Winner(directory=None, decision=GENERAL, reason="")
    seen = {name: Evidence(gain=0.02, variance=1e-4, prompts=70) for name in names}
    what = model_pair(work.config)._asdict() | {"evidence": seen, "centroids": centroids, "costs": COSTS} | changes
    return publish(work.config.bundles, winners | {GENERAL: general}, router=None, **what)


def test_tasks_that_the_live_bundle_knows_keep_their_names_and_drafts(tmp_path: Path) -> None:
    before = partitioned(tmp_path, FIRST)
    assert before.task_changes() == []
    maths, chemistry = (name_of(before, task) for task in ("maths", "chemistry"))
    manifest = published(before, tmp_path)
    after = partitioned(tmp_path, LATER)
    assert (name_of(after, "maths"), name_of(after, "chemistry")) == (maths, chemistry)
    code = name_of(after, "code")
    assert set(after.task_changes()) == {
        TaskChange("kept", maths, maths),
        TaskChange("kept", chemistry, chemistry),
        TaskChange("new", None, code),
    }
    live = live_drafts(after)
    assert live.adapters.keys() == {maths, chemistry}
    assert {live.adapters[name].name for name in (maths, chemistry)} == {
        manifest.slots[name].part for name in (maths, chemistry)
    }
    assert live.evidence.keys() == {maths, chemistry}
    assert after.centroids().names == after.tasks().names


def test_evidence_of_earlier_versions_was_of_acceptance_and_does_not_count(tmp_path: Path) -> None:
    work = partitioned(tmp_path, FIRST)
    manifest = published(work, tmp_path, costs=None)
    assert manifest.evidence
    assert live_drafts(work).evidence == {}


def test_without_a_bundle_that_tells_tasks_are_named_by_their_words(tmp_path: Path) -> None:
    """It is for another target, or of an earlier format, or made with another embedder."""
    before = partitioned(tmp_path, FIRST)
    own = partitioned(tmp_path, LATER).tasks().names
    for changes in ({"target": "another"}, {"centroids": None}):
        published(before, tmp_path, **changes)
        assert partitioned(tmp_path, LATER).tasks().names == own
    published(before, tmp_path)
    other = {"partition": {"embedder": "another", "k": 3, "max_k": 2}}
    assert partitioned(tmp_path, LATER, **other).tasks().names == own
    assert partitioned(tmp_path, LATER).tasks().names != own


def test_what_is_live_is_no_input_of_a_stage(tmp_path: Path) -> None:
    """Or a retraining would not be done once it has published."""
    work = partitioned(tmp_path, FIRST)
    published(work, tmp_path)
    again = open_workspace(work.config)
    assert again.steps["partition"].done
    assert {name: step.key for name, step in again.steps.items()} == {
        name: step.key for name, step in work.steps.items()
    }


def test_embeddings_pass_through_files_of_the_stage_and_not_through_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = partitioned(tmp_path, FIRST)
    texts: dict[Split, list[str]] = {
        split: [f"{text} {number}" for text in FIRST.values() for number in range(50)] for split in SPLITS
    }
    count, told = sum(map(len, texts.values())), np.concatenate([vectors(FIRST) for _ in SPLITS])
    known = iter(told[[130, 131, *range(130), *range(132, count)]])  # in the order in which they are asked for
    monkeypatch.setattr(partition, "prompt_texts", lambda _: texts)
    monkeypatch.setattr(partition, "sentence_encoder", lambda *_: lambda asked: np.stack([next(known) for _ in asked]))
    encoder = partition.Encoder(work)
    for block in (range(130, 132), range(130), range(132, count)):  # as workers that are not equally fast
        numbers = np.array(block)
        answer = encoder({"number": numbers})
        assert answer.keys() == {"number"}
        assert (answer["number"] == numbers).all()
    assert (partition.Blocks(work).vectors() == told).all()
    before = work.tasks().labels("test")
    partition.partition_embedded(work)
    assert work.tasks().labels("test") == before
    assert (np.concatenate([work.embeddings()[split] for split in SPLITS]) == told).all()
    assert not (work.steps["partition"].directory / "blocks").exists()


def name_of(work: Workspace, task: str) -> str:
    """The name of the partition's task that holds the prompts of this one."""
    centroids = work.centroids()
    return centroids.names[int(centroids.centroids[:, AXES[task]].argmax())]
