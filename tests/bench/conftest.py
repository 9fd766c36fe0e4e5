"""A retraining of the shipped family that has collected a few short answers and done nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from core.family import BUNDLE_DIR
from tests.family.prompts import write_prompts
from train_jobs.config import load_config
from train_jobs.prompts.sources import gather
from train_jobs.stages.collect import Answerer, prepare
from train_jobs.work.artefacts import SPLITS
from train_jobs.work.models import context


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its configuration, which names the shipped bundle as the live one."""
    directory = tmp_path_factory.mktemp("collected")
    prompts = write_prompts(directory / "prompts.jsonl", ("math", "english"), 18)
    collect = {"files": [str(prompts)], "held_out_share": 0.6, "max_tokens": 16}
    models = {"target": {"model": "family:target", "max_sessions": 4}, "draft": "family:draft"}
    places = {"work": str(directory / "work"), "bundles": str(BUNDLE_DIR)}
    file = directory / "small.yaml"
    file.write_text(yaml.safe_dump(models | places | {"collect": collect}))
    config, shards = load_config(file), directory / "work" / "collect"
    shards.mkdir(parents=True)
    answerer = Answerer(config, shards, context(config.draft), lambda *_: None)
    traces = gather(config, context(config.target.model))
    for split in SPLITS:
        answerer.work(prepare(shards, f"{split}-0000", traces[split], teacher=split == "train"))
    return file
