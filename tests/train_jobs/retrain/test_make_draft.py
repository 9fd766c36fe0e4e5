"""`taskspec draft make` as a command: a draft out of the target, better than it was before it was aligned."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from core.model.causal_lm import load_draft_model
from core.model.config import read_config
from core.model.draft_vocabulary import DraftVocabulary
from core.replay.replay import score_draft, total
from tests.train_jobs.retraining import ENVIRONMENT, TINY
from train_jobs.config import load_config
from train_jobs.stages import open_workspace
from train_jobs.work.models import model_directory, replay_terms
from train_jobs.work.workspace import Workspace

pytestmark = pytest.mark.soak  # one and three minutes, most of them for the start of Ray Train's runs


def written(directory: Path, **make: Any) -> Path:
    settings = yaml.safe_load(TINY.read_text())
    settings |= {"draft": str(directory / "made"), "work": str(directory / "work"), "make": make}
    file = directory / "make.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


def made(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "serve_app.cli.main", "draft", "make", "--config", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)


def acceptance(directory: Path, work: Workspace) -> float:
    config = work.config
    target = model_directory(config.target.model)
    draft = load_draft_model(None, directory, dtype=torch.float32, target=target)
    return total(score_draft(draft, work.traces("test"), replay_terms(config))).acceptance_rate


def test_it_writes_a_draft_of_the_given_shape_that_has_learnt_from_the_answers(tmp_path: Path) -> None:
    file = written(tmp_path, layers=2, vocabulary=512, steps=30)
    outcome = made(file)
    assert outcome.returncode == 0, outcome.stderr
    assert "tokens per target pass" in outcome.stdout
    draft, work = tmp_path / "made", open_workspace(load_config(file))
    assert read_config(draft)["num_hidden_layers"] == 2
    vocabulary = DraftVocabulary.load(draft)
    assert len(vocabulary.ids) == 512
    answered = {token for trace in work.traces("train") for token in trace.output_ids}
    assert len(answered - set(vocabulary.ids.tolist())) < len(answered) / 2
    [untrained] = (tmp_path / "work" / "draft" / "untrained").iterdir()
    assert acceptance(draft, work) > acceptance(untrained, work) + 0.05


def test_what_is_not_given_is_chosen_by_trials(tmp_path: Path) -> None:
    file = written(tmp_path, steps=20, trial_steps=10)
    outcome = made(file)
    assert outcome.returncode == 0, outcome.stderr
    tried = {file.name for file in (tmp_path / "work" / "draft" / "drafts").iterdir() if file.name.endswith("-10")}
    assert tried == {f"layers-{layers}-width-whole-ids-2048-steps-10" for layers in (1, 2, 4)}
    weights = (tmp_path / "made" / "model.safetensors").read_bytes()
    again = made(file)  # all is done
    assert again.returncode == 0
    assert again.stdout.count("The draft is in") == 1
    assert "Over the draft" not in again.stdout
    assert (tmp_path / "made" / "model.safetensors").read_bytes() == weights
