"""The shapes that `taskspec draft make` tries, without their training: what each costs and brings, and the choice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import yaml

from core.errors import ConfigError
from core.family import DRAFT_DIR
from core.model.config import read_config
from core.model.draft_vocabulary import DraftVocabulary
from core.replay.speed import MOST_ROWS
from core.smollm2 import DRAFT_DIR as SMOLLM2_DRAFT_DIR
from core.traces.store import Trace, parquet_of
from tests.core.family_records import answered, requests
from tests.train_jobs.retraining import TINY
from train_jobs.config import MakeConfig, WorkerConfig, load_config
from train_jobs.retrain import make_draft
from train_jobs.retrain.make_draft import TRIED_LAYERS, DraftMaker, Shape, quickest
from train_jobs.work.artefacts import COSTS, SPLITS

if TYPE_CHECKING:
    from train_jobs.cluster.progress import Progress
    from train_jobs.drafts.training_runs import TrainingRun
    from train_jobs.work.artefacts import FittedDrafts
    from train_jobs.work.workspace import Workspace


PASSES = (0.010,) * MOST_ROWS
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
    assert (made.before, made.gain, made.in_place) == (None, None, True)
    monkeypatch.setattr(make_draft, "pass_seconds", None)  # measured once
    monkeypatch.setattr(make_draft, "token_seconds", None)
    assert maker.trials() == promises
    assert maker.make(best.shape).promise == made.promise


@pytest.mark.usefixtures("maker")
def test_a_draft_that_is_there_stays_unless_the_new_one_is_better(tmp_path: Path) -> None:
    config, slow, quick = load_config(tmp_path / "make.yaml"), Shape(4, None, 1024), Shape(2, None, 1024)
    assert DraftMaker(config, cast("Progress", None)).make(slow).directory == tmp_path / "made"
    better = DraftMaker(config, cast("Progress", None)).make(quick)
    assert better.before is not None
    assert better.before.shape == slow
    assert better.gain is not None
    assert better.gain.low > 0.0
    assert (better.in_place, better.directory) == (True, tmp_path / "made")
    assert read_config(tmp_path / "made")["num_hidden_layers"] == 2
    worse = DraftMaker(config, cast("Progress", None)).make(slow)
    assert not worse.in_place
    assert tmp_path / "work" in worse.directory.parents
    assert read_config(tmp_path / "made")["num_hidden_layers"] == 2


@pytest.mark.usefixtures("maker")
def test_a_draft_is_made_into_an_empty_directory_and_made_again_it_is_the_same(tmp_path: Path) -> None:
    config, shape = load_config(tmp_path / "make.yaml"), Shape(2, None, 1024)
    (tmp_path / "made").mkdir()
    for _ in range(2):
        made = DraftMaker(config, cast("Progress", None)).make(shape)
        assert (made.directory, made.before, made.gain) == (tmp_path / "made", None, None)
        assert DraftVocabulary.load(made.directory).ids.shape == (1024,)


@pytest.mark.usefixtures("maker")
def test_nothing_is_made_where_another_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_draft, "run_stage", None)
    config, there = load_config(tmp_path / "make.yaml"), tmp_path / "made"
    for model, what in ((DRAFT_DIR, "no draft that"), (SMOLLM2_DRAFT_DIR, "a draft for HuggingFaceTB/SmolLM2")):
        shutil.copytree(model, there, dirs_exist_ok=True)
        with pytest.raises(ConfigError, match=f"draft: .*made: there is {what}.*; write another directory"):
            DraftMaker(config, cast("Progress", None))
        assert (there / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda draft: change(draft, "config.json", '"draft_model"', '"eagle3"'), "there is no draft that"),
        (lambda draft: (draft / "tokenizer.json").unlink(), "no tokenizer that can be read"),
        (lambda draft: (draft / "model.safetensors").unlink(), "draft: "),
        (lambda draft: (draft / "draft_vocabulary.safetensors").unlink(), "draft: "),
    ],
)
def test_a_draft_that_cannot_be_judged_is_told_of_before_any_work(
    maker: DraftMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], object],
    told: str,
) -> None:
    maker.make(Shape(2, None, 1024))
    config = load_config(tmp_path / "make.yaml")
    DraftMaker(config, cast("Progress", None))
    monkeypatch.setattr(make_draft, "run_stage", None)
    spoil(tmp_path / "made")
    with pytest.raises(ConfigError, match=told):
        DraftMaker(config, cast("Progress", None))


def change(draft: Path, file: str, old: str, new: str) -> None:
    text = (draft / file).read_text()
    assert old in text
    (draft / file).write_text(text.replace(old, new))


def test_a_draft_of_another_target_with_this_name_is_not_replaced(maker: DraftMaker, tmp_path: Path) -> None:
    maker.make(Shape(2, None, 1024))
    tokenizer = json.loads((tmp_path / "made" / "tokenizer.json").read_text())
    first, second, *_ = vocabulary = tokenizer["model"]["vocab"]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (tmp_path / "made" / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match=r"number their tokens differently.*; write another directory"):
        DraftMaker(load_config(tmp_path / "make.yaml"), cast("Progress", None))


@pytest.mark.usefixtures("maker")
def test_a_shape_that_the_target_does_not_allow_is_refused_before_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_draft, "run_stage", None)
    for make, told in (
        ({"layers": 99}, "make: a draft keeps 1 to 6 of its target's layers, not 99"),
        ({"vocabulary": 1}, "make.vocabulary: a draft of this target has 2 to 2048 ids, not 1"),
        ({"vocabulary": 99_999}, "make.vocabulary: a draft of this target has 2 to 2048 ids, not 99999"),
        ({"width": 100}, "make: the width of a narrow draft is a multiple of 64 below its target's, not 100"),
    ):
        config = load_config(tmp_path / "make.yaml").model_copy(
            update={"make": MakeConfig.model_construct(**(MakeConfig().model_dump() | make))}
        )
        with pytest.raises(ConfigError, match=told):
            DraftMaker(config, cast("Progress", None))


@pytest.mark.parametrize(
    ("section", "changes", "kept"),
    [
        ("align", {}, ["drafts", "costs", "promises"]),
        ("align", {"seeds": (0, 17), "steps": 17}, ["drafts", "costs", "promises"]),
        ("align", {"device": "meta"}, ["drafts"]),
        ("collect", {"worker": WorkerConfig(num_cpus=7)}, ["drafts"]),
        ("evaluate", {"worker": WorkerConfig(num_cpus=7)}, ["drafts"]),
        ("align", {"seeds": (17,)}, []),
        ("align", {"loss": "kl"}, []),
        ("align", {"learning_rate": 0.5}, []),
        ("align", {"budget": 17}, []),
        ("align", {"products": "bfloat16"}, []),
        ("collect", {"max_tokens": 7}, []),
    ],
)
def test_what_is_kept_is_of_these_answers_this_training_and_these_workers(
    maker: DraftMaker, tmp_path: Path, section: str, changes: dict[str, Any], kept: list[str]
) -> None:
    maker.trials()
    place = tmp_path / "work" / "draft"
    files = {"drafts": place / "drafts", "costs": place / "speeds" / COSTS}
    [files["promises"]] = place.rglob("promises-*")
    assert all(file.exists() for file in files.values())
    config = load_config(tmp_path / "make.yaml")
    changed = getattr(config, section).model_copy(update=changes)
    DraftMaker(config.model_copy(update={section: changed}), cast("Progress", None))
    assert [name for name, file in files.items() if file.exists()] == kept
