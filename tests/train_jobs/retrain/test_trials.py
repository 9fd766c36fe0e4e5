"""The shapes that `taskspec draft make` tries, without their training: what each costs and brings, and the choice."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import yaml

from core.model.config import read_config
from core.model.draft_vocabulary import DraftVocabulary
from core.replay.speed import PROFILED_ROWS
from core.traces.store import Trace, parquet_of
from tests.core.family_records import answered, requests
from tests.train_jobs.retraining import TINY
from train_jobs.config import load_config
from train_jobs.retrain import make_draft
from train_jobs.retrain.make_draft import TRIED_LAYERS, DraftMaker, quickest
from train_jobs.work.artefacts import SPLITS

if TYPE_CHECKING:
    from train_jobs.cluster.progress import Progress
    from train_jobs.drafts.training_runs import TrainingRun
    from train_jobs.work.artefacts import FittedDrafts
    from train_jobs.work.workspace import Workspace


PASSES = (0.010,) * PROFILED_ROWS
TOKENS = {1: 0.0005, 2: 0.001, 4: 0.008}  # by layers, with 1,024 ids


@pytest.fixture
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DraftMaker:
    """It has eight answers in each split, and its drafts stay untrained."""
    settings = yaml.safe_load(TINY.read_text()) | {"draft": str(tmp_path / "made"), "work": str(tmp_path / "work")}
    (tmp_path / "make.yaml").write_text(yaml.safe_dump(settings))
    records = answered(requests("english", 8, 3, temperature=0.0))
    content = parquet_of([Trace(**msgspec.structs.asdict(record)) for record in records])

    def collected(work: Workspace, *_: Any) -> None:
        for split in SPLITS:
            (work.steps["collect"].start() / f"{split}-0000.parquet").write_bytes(content)

    def untrained(_work: Workspace, drafts: FittedDrafts, runs: Sequence[TrainingRun], *_: Any) -> None:
        for run in runs:
            shutil.copytree(run.draft, drafts.draft(run.name), dirs_exist_ok=True)

    def token_seconds(_config: Any, directory: Path, vocabulary: DraftVocabulary | None = None) -> float:
        ids = len((vocabulary or DraftVocabulary.load(directory)).ids)
        return TOKENS[read_config(directory)["num_hidden_layers"]] * ids / 1024

    monkeypatch.setattr(make_draft, "run_stage", collected)
    monkeypatch.setattr(make_draft, "fit_all", untrained)
    monkeypatch.setattr(make_draft, "pass_seconds", lambda _: PASSES)
    monkeypatch.setattr(make_draft, "token_seconds", token_seconds)
    return DraftMaker(load_config(tmp_path / "make.yaml"), cast("Progress", None))


def test_every_shape_is_tried_once_and_the_quickest_is_made(maker: DraftMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    promises = maker.trials()
    assert {(promise.shape.layers, promise.shape.vocabulary) for promise in promises} == {
        (layers, ids) for layers in TRIED_LAYERS for ids in (1024, 2048)
    }
    for promise in promises:
        assert promise.token == pytest.approx(100 * TOKENS[promise.shape.layers] * promise.shape.vocabulary / 1024)
    best = quickest(promises)
    assert (best.shape.layers, best.shape.vocabulary) == (2, 1024)
    assert max(promises, key=lambda promise: promise.counts.acceptance_rate).shape.layers == 4  # but it is slow
    made = maker.make(best.shape)
    assert made.promise == best  # the splits are the same here
    monkeypatch.setattr(make_draft, "pass_seconds", None)  # measured once
    monkeypatch.setattr(make_draft, "token_seconds", None)
    assert maker.trials() == promises
    assert maker.make(best.shape) == made
