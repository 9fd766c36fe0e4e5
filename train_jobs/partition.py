"""Second stage: the tasks in the prompts, without labels.

Enters: the collected prompts, an embedding model. Leaves: a `TaskPartition` found in the prompts to learn from, and the
task of every prompt, held-out ones too. The embedding, which is the work, is Ray Data's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import ray
from safetensors.numpy import load_file, save_file

from core.durable import replace
from core.embedding import Encode, Matrix, sentence_encoder
from core.errors import ConfigError
from core.family import locate
from core.partition import MIN_PROMPTS, TaskPartition, find_tasks
from core.tokenizer import load_tokenizer
from train_jobs import collect
from train_jobs.collected import PARTS, Collected, Part
from train_jobs.config import RetrainConfig
from train_jobs.progress import Progress, Report
from train_jobs.units import Unit
from train_jobs.workers import at_once, resources

_BLOCK = 128  # prompts embedded together; blocks are cut alike every time, so that sums round alike
_TASKS = "tasks.json"
_POINTS = "embeddings.safetensors"


class Assigned:
    """The task of every trace of every part, by its number among the partition's names."""

    def __init__(self, directory: Path) -> None:
        self.partition = TaskPartition.load(directory)
        self._tasks: dict[Part, list[int]] = msgspec.json.decode((directory / _TASKS).read_bytes())

    @property
    def names(self) -> tuple[str, ...]:
        return self.partition.names

    def labels(self, part: Part) -> list[int]:
        """Of the traces of a part, in order."""
        return self._tasks[part]


def unit(config: RetrainConfig) -> Unit:
    """Where it is written, and what it depends on."""
    section = config.partition.model_dump(mode="json", exclude={"worker"})
    return Unit(config.work / "partition", section, collect.unit(config).key)


def run(config: RetrainConfig, progress: Progress) -> None:
    """Embed, find the tasks, assign everything."""
    directory = unit(config).start()
    texts = prompt_texts(config)
    if len(texts["train"]) < MIN_PROMPTS:
        raise ConfigError(f"collect: {len(texts['train'])} prompts are too few, bring {MIN_PROMPTS} or more")
    with progress.stage("partition", 2) as report:
        vectors = embed([text for part in PARTS for text in texts[part]], config, report)
        report("tasks", 0, 1, "")
        find: Any = ray.remote(_find).options(**resources(config.partition.worker))
        ray.get(find.remote(config, texts, vectors, directory))
        report("tasks", 1, 1, "")


def prompt_texts(config: RetrainConfig) -> dict[Part, list[str]]:
    """What the prompts of every part say, without the target's template around it."""
    tokenizer = load_tokenizer(locate(config.target.model))
    collected = Collected(collect.unit(config).directory)
    return {part: [tokenizer.prompt_text(trace.prompt_ids) for trace in collected.traces(part)] for part in PARTS}


def embed(texts: Sequence[str], config: RetrainConfig, report: Report) -> Matrix:
    """Unit vectors [n, d] of texts, by as many encoders as the cluster has room for."""
    from ray.data import ActorPoolStrategy, DataContext

    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it tells of progress, which the view does
    DataContext.get_current().enable_progress_bars = False
    DataContext.get_current().print_on_execution_start = False
    worker, blocks = config.partition.worker, -(-len(texts) // _BLOCK)
    rows = [{"number": number, "text": text} for number, text in enumerate(texts)]
    found = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
        Encoder,
        fn_constructor_args=(config.partition.embedder, "cuda" if worker.num_gpus else "cpu"),
        batch_size=None,
        compute=ActorPoolStrategy(size=min(blocks, at_once(worker))),
        **resources(worker),
    )
    vectors: dict[int, Any] = {}
    for batch in found.iter_batches(batch_size=None):
        vectors |= zip(batch["number"].tolist(), batch["vector"], strict=True)
        report("embedding", len(vectors), len(texts), "")
    return np.stack([vectors[number] for number in range(len(texts))])


class Encoder:
    """A worker of Ray Data with the embedding model loaded."""

    def __init__(self, model: str, device: str) -> None:
        self._encode = _encoder(model, device)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"number": batch["number"], "vector": self._encode(batch["text"].tolist())}


@cache
def _encoder(model: str, device: str) -> Encode:
    return sentence_encoder(model, device)


def assign(partition: TaskPartition, texts: dict[Part, list[str]], points: dict[Part, Matrix]) -> dict[Part, list[int]]:
    """The task of every prompt of every part."""
    found = {part: partition.assign(texts[part], points[part]).tolist() for part in PARTS}
    return found | {"train": partition.labels.tolist()}


def embeddings(config: RetrainConfig) -> dict[Part, Matrix]:
    """What the stage embedded, by part."""
    found = load_file(unit(config).directory / _POINTS)
    return {part: found[part] for part in PARTS}


def _find(config: RetrainConfig, texts: dict[Part, list[str]], vectors: Matrix, directory: Path) -> None:
    """Write the partition, the tasks of all parts, and what both were made from."""
    section, ends = config.partition, np.cumsum([len(texts[part]) for part in PARTS])
    points: dict[Part, Matrix] = dict(zip(PARTS, np.split(vectors, ends[:-1]), strict=True))
    partition = find_tasks(texts["train"], points["train"], k=section.k, max_k=section.max_k)
    partition.save(directory)
    save_file({str(part): found for part, found in points.items()}, directory / _POINTS)
    replace(directory / _TASKS, msgspec.json.encode(assign(partition, texts, points)))
