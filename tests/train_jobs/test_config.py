"""Configurations of retrainings: the shipped ones load; the error for a mistake names what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import train_jobs
from core.errors import ConfigError
from train_jobs.config import load_config

SHIPPED = sorted(Path(train_jobs.__file__).parent.glob("configs/*.yaml"))
SMALLEST: dict[str, Any] = {
    "target": {"model": "family:target"},
    "draft": "family:draft",
    "work": "work",
    "bundles": "bundles",
    "collect": {"files": ["prompts.jsonl"]},
}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_the_shipped_ones_load(file: Path) -> None:
    assert load_config(file).align.steps > 0


def written(directory: Path, **changes: Any) -> Path:
    file = directory / "retrain.yaml"
    file.write_text(yaml.safe_dump(SMALLEST | changes))
    return file


def test_little_is_enough(tmp_path: Path) -> None:
    config = load_config(written(tmp_path))
    assert config.align.seeds == (0,)
    assert config.anchored().work.is_absolute()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"align": {"step": 5}}, "align.step: unknown key; did you mean `steps`?"),
        ({"collect": {"worker": {"num_cpu": 1}, "files": ["p.jsonl"]}}, "did you mean `num_cpus`?"),
        ({"colect": {}}, "colect: unknown key; did you mean `collect`?"),
        ({"collect": {}}, "write exactly one of `files` and `traces`"),
        ({"collect": {"traces": "t", "files": ["p.jsonl"]}}, "write exactly one of `files` and `traces`"),
        ({"collect": {"family": 5}}, "family is no setting any more: write files: [train_jobs/configs/prompts.jsonl]"),
        ({"collect": {"files": ["p.jsonl"], "held_out": 5}}, "held_out is no setting any more: write held_out_share"),
        ({"router": {"general": "family:general"}}, "write a JSONL file of prompts of no task, or leave it out"),
        ({"router": {"general_prompts": 9}}, "general_prompts is no setting any more: the router learns from all"),
        ({"router": {"baselines": False}}, "baselines is no setting any more: leave it out"),
        ({"studies": {"ks": [1]}}, "studies is no setting any more: leave it out"),
        (
            {"watch": {"max_cpus": 2}, "align": {"worker": {"num_cpus": 4}}},
            "align.worker.num_cpus is 4 and watch.max_cpus 2: write align: {worker: {num_cpus: 2}} or less, or watch: ",
        ),
        ({"watch": {"recent": 100}}, "recent is less than min_answers, 200: write that or more"),
        ({"watch": {"every": 5}}, "watch.every: unknown key; did you mean `every_s`?"),
        ({"align": {"loss": "kk"}}, "align.loss: Value error, there is no loss 'kk'; write kl or lk"),
        ({"align": {"steps": 0}}, "align.steps: Input should be greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"retrain\.yaml") as error:
        load_config(written(tmp_path, **changes))
    assert said in str(error.value)


def test_workers_within_the_cpus_of_a_watch_are_taken(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, watch={"max_cpus": 4}, align={"worker": {"num_cpus": 4}}))
    assert config.workers()["align"].num_cpus == config.watch.max_cpus == 4


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load_config(tmp_path / "none.yaml")
