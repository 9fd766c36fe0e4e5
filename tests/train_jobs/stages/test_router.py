"""The router stage: a router that agrees with the partition on held-out prompts, and its figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from core.draft_key import GENERAL
from core.errors import ConfigError
from core.family import TARGET_DIR
from core.sampling.params import SamplingParams
from core.tasks.classifier import TaskClassifier
from core.tasks.classifier_training import winner
from core.tasks.clustering import TaskPartition, find_tasks
from core.tasks.embedding import PACKAGED, sentence_encoder
from core.text.tokenizer import Tokenizer, load_tokenizer
from core.traces.store import Trace
from tests.family.corpora import items
from tests.family.prompts import write_general
from train_jobs.config import RetrainConfig
from train_jobs.stages.router import RouterData, fit_router, milliseconds
from train_jobs.work.findings import Routing

TASKS = ("chinese", "logic")
SMALL = {"steps": 70, "batch": 32, "longest": 24}


class Stage(NamedTuple):
    """Results of the stage before."""

    partition: TaskPartition
    train: list[Trace]
    held_out: list[Trace]


class Fitted(NamedTuple):
    """Results of the stage."""

    routing: Routing
    directory: Path
    reports: list[tuple[int, int, str]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(TARGET_DIR)


def traces(texts: list[str], tokenizer: Tokenizer) -> list[Trace]:
    ids = [tuple(tokenizer.encode_chat([{"role": "user", "content": text}])) for text in texts]
    params = SamplingParams(seed=0, max_tokens=1)
    return [Trace(prompt_ids=prompt, output_ids=(2,), params=params) for prompt in ids]


@pytest.fixture(scope="module")
def stage(tokenizer: Tokenizer) -> Stage:
    texts = [item.prompt for task in TASKS for item in items(task, 60, seed=41)]
    unseen = [item.prompt for task in TASKS for item in items(task, 15, seed=42, split="held_out")]
    partition = find_tasks(texts, sentence_encoder(PACKAGED)(texts), k=2, max_k=2)
    return Stage(partition, traces(texts, tokenizer), traces(unseen, tokenizer))


def config(**router: Any) -> RetrainConfig:
    whole = {
        "target": {"model": "family:target"},
        "draft": "family:draft",
        "work": "work",
        "bundles": "bundles",
        "collect": {"files": ["prompts.jsonl"]},
        "partition": {"embedder": PACKAGED},
        "router": SMALL | router,
    }
    return RetrainConfig.model_validate(whole)


def fitted(stage: Stage, to: Path, **router: Any) -> Fitted:
    reports: list[tuple[int, int, str]] = []

    def report(done: int, total: int, note: str) -> None:
        reports.append((done, total, note))

    data = RouterData(stage.partition, stage.train, stage.partition.labels.tolist(), stage.held_out)
    return Fitted(fit_router(config(**router), data, to, report), to, reports)


@pytest.fixture(scope="module")
def small(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    directory = tmp_path_factory.mktemp("router")
    return fitted(stage, directory / "router", general=write_general(directory / "general.jsonl", 200))


@pytest.mark.thorough
def test_it_learns_what_the_partition_calls_prompts(small: Fitted, stage: Stage) -> None:
    assert small.routing.classes == [*stage.partition.names, GENERAL]
    (router,) = small.routing.classifiers
    assert router.name == "router"
    assert router.agreement >= 0.9
    assert router.reworded >= 0.75
    assert 0 < router.p50_ms <= router.p99_ms


@pytest.mark.thorough
def test_the_confusion_tells_where_every_held_out_prompt_went(small: Fitted, stage: Stage) -> None:
    confusion, router = small.routing.confusion, TaskClassifier.load(small.directory)
    of_tasks = confusion[: stage.partition.k]
    assert sum(map(sum, of_tasks)) == len(stage.held_out)
    right = sum(row[i] for i, row in enumerate(of_tasks))
    assert right / len(stage.held_out) == pytest.approx(small.routing.classifiers[0].agreement)
    assert sum(row[-1] for row in of_tasks) == sum(
        winner(router, trace.prompt_ids) == GENERAL for trace in stage.held_out
    )
    assert confusion[-1][-1] > 0.9 * sum(confusion[-1]) > 0


@pytest.mark.thorough
def test_it_writes_a_router_and_nothing_else(small: Fitted, stage: Stage) -> None:
    assert sorted(file.name for file in small.directory.iterdir()) == ["config.json", "model.safetensors"]
    assert sorted(TaskClassifier.load(small.directory).tasks) == sorted(stage.partition.names)


@pytest.mark.thorough
def test_every_step_is_reported(small: Fitted) -> None:
    assert small.reports == [(step, SMALL["steps"], "router") for step in range(1, SMALL["steps"] + 1)]


@pytest.mark.soak
def test_the_same_inputs_give_the_same_bytes(stage: Stage, tmp_path: Path) -> None:
    for name in ("one", "other"):
        fitted(stage, tmp_path / name, steps=3)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_without_general_prompts_the_threshold_is_the_lowest(stage: Stage, tmp_path: Path) -> None:
    routing = fitted(stage, tmp_path, steps=2).routing
    assert TaskClassifier.load(tmp_path).config.threshold == 0.6
    assert not any(routing.confusion[-1])


def test_every_prompt_is_timed_by_a_call_of_its_own_on_one_thread() -> None:
    calls: list[tuple[Sequence[int], int]] = []
    threads = torch.get_num_threads()
    prompts = [[number] for number in range(20)]
    p50, p99 = milliseconds(lambda prompt: calls.append((prompt, torch.get_num_threads())), prompts)
    assert 0 < p50 <= p99
    assert [prompt for prompt, _ in calls[-20:]] == prompts
    assert {count for _, count in calls} == {1}
    assert torch.get_num_threads() == threads


def test_general_prompts_come_from_a_file(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "general.jsonl"
    lines: list[dict[str, Any]] = [{"prompt": f"Something about trains, number {n}."} for n in range(8)]
    lines += [{"messages": [{"role": "user", "content": f"And birds {n}?"}]} for n in range(2)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    routing = fitted(stage, tmp_path / "router", steps=2, general=file).routing
    assert sum(routing.confusion[-1]) == 2
    file.write_text(json.dumps(lines[0]))
    with pytest.raises(ConfigError, match="at least 5"):
        fitted(stage, tmp_path / "router", steps=2, general=file)
