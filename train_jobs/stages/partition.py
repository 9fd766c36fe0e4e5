"""Stage 2, partition: the tasks in the training prompts, found without labels, and the task of every prompt.

Tasks that the live bundle knows keep their names, so that their drafts and evidence carry over. The prompts are
embedded by Ray Data, which takes most of the stage's time. Workers read them in the work directory and leave their
embeddings there: nothing of a prompt passes through Ray, which may write what it holds to a disk.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from safetensors.numpy import load, save

from core import atomic_files
from core.errors import TooFewPrompts
from core.tasks.clustering import MIN_PROMPTS, TaskPartition, find_tasks
from core.tasks.embedding import Matrix, sentence_encoder
from core.tasks.identity import Recognised, TaskCentroids, recognise
from train_jobs.cluster.progress import Progress, ReportProgress
from train_jobs.cluster.workers import at_once, resources
from train_jobs.config import RetrainConfig
from train_jobs.work.artefacts import CHANGES, HELD_OUT, SPLITS, Split, TaskAssignment, save_embeddings, write_json
from train_jobs.work.cached_step import settings_of
from train_jobs.work.in_memory import learns_in_memory
from train_jobs.work.models import live_bundle, target_tokenizer
from train_jobs.work.workspace import Workspace

NEEDS = ("collect",)
_BLOCK = 128  # prompts embedded together; equal blocks in every run, so that sums are rounded alike


def inputs(config: RetrainConfig) -> list[object]:
    return [settings_of(config.partition)]


def run(work: Workspace, progress: Progress) -> None:
    """Embed all prompts, find the tasks, assign every prompt to one."""
    config = work.config.partition
    work.steps["partition"].start()
    sizes = {split: len(work.traces(split)) for split in SPLITS}
    if sizes["train"] < MIN_PROMPTS:
        raise TooFewPrompts(f"collect: {sizes['train']} prompts are too few, bring {MIN_PROMPTS} or more")
    with progress.stage("partition", 2) as report:
        _embed(work, sum(sizes.values()), report)
        report("tasks", 0, 1, "")
        find: Any = ray.remote(partition_embedded).options(**resources(config.worker))
        ray.get(find.remote(work))
        report("tasks", 1, 1, "")


def prompt_texts(work: Workspace) -> dict[Split, list[str]]:
    """All prompts by split, as text without the target's chat template."""
    tokenizer = target_tokenizer(work.config)
    return {split: [tokenizer.prompt_text(trace.prompt_ids) for trace in work.traces(split)] for split in SPLITS}


def recognised(config: RetrainConfig, partition: TaskPartition, embeddings: Matrix) -> Recognised:
    """The names of the tasks: those of the live bundle where it knows them, by the embeddings [n, d] of the prompts."""
    bundle = live_bundle(config)
    if bundle is None or bundle.centroids is None:
        return Recognised(partition.names, ())
    new = TaskCentroids.of(config.partition.embedder, partition.names, partition.labels, embeddings)
    return recognise(TaskCentroids.load(bundle.centroids), new, partition.labels, embeddings)


def partition_embedded(work: Workspace) -> None:
    """Partition the prompts by the `Blocks` that the encoders left."""
    blocks = Blocks(work)
    partition_prompts(work, prompt_texts(work), blocks.vectors())
    blocks.remove()


def partition_prompts(work: Workspace, texts: dict[Split, list[str]], vectors: Matrix) -> None:
    """Write the partition, the task of every prompt, and the embeddings."""
    config, directory = work.config.partition, work.steps["partition"].directory
    ends = np.cumsum([len(texts[split]) for split in SPLITS])
    embeddings: dict[Split, Matrix] = dict(zip(SPLITS, np.split(vectors, ends[:-1]), strict=True))
    partition = find_tasks(texts["train"], embeddings["train"], k=config.k, max_k=config.max_k)
    if learns_in_memory(work.config):  # both are published, and these are words of prompts
        names = tuple(f"task-{label}" for label in range(partition.k))
        partition = replace(partition, names=names, telling=())
    recognition = recognised(work.config, partition, embeddings["train"])
    save_embeddings(directory, embeddings)
    write_json(directory / CHANGES, recognition.changes)
    labels: dict[Split, list[int]] = {"train": partition.labels.tolist()}
    labels |= {split: partition.assign(texts[split], embeddings[split]).tolist() for split in HELD_OUT}
    TaskAssignment.save(directory, replace(partition, names=recognition.names), labels)


def _embed(work: Workspace, count: int, report: ReportProgress) -> None:
    """Embed all prompts, split by split, by as many encoders as the cluster has room for. They leave `Blocks`."""
    from ray.data import ActorPoolStrategy, DataContext

    logging.getLogger("ray.data").setLevel(logging.ERROR)  # `report` shows the progress
    DataContext.get_current().enable_progress_bars = False
    DataContext.get_current().print_on_execution_start = False
    Blocks(work).remove()  # those of a run that was interrupted
    worker, blocks = work.config.partition.worker, -(-count // _BLOCK)
    rows = [{"number": number} for number in range(count)]
    encoded = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
        Encoder,
        fn_constructor_args=(work,),
        batch_size=None,
        compute=ActorPoolStrategy(size=min(blocks, at_once(worker))),
        **resources(worker),
    )
    done = 0
    for batch in encoded.iter_batches(batch_size=None):
        done += len(batch["number"])
        report("embedding", done, count, "")


class Blocks:
    """Embeddings of prompts, a file per block, until the tasks are found."""

    def __init__(self, work: Workspace) -> None:
        self._directory: Path = work.steps["partition"].directory / "blocks"

    def keep(self, numbers: Sequence[int], vectors: Matrix) -> None:
        """Write the `vectors` [n, d] of the prompts with these numbers."""
        self._directory.mkdir(exist_ok=True)
        content = save({"numbers": np.array(numbers), "vectors": np.ascontiguousarray(vectors)})
        atomic_files.replace(self._directory / f"{min(numbers)}.safetensors", content)

    def vectors(self) -> Matrix:
        """The vectors [count, d] of all prompts, in the order of their numbers."""
        blocks = [load(file.read_bytes()) for file in self._directory.iterdir()]
        vectors: Matrix = np.concatenate([block["vectors"] for block in blocks])
        return vectors[np.argsort(np.concatenate([block["numbers"] for block in blocks]))]

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


class Encoder:
    """A worker of Ray Data with the prompts and the embedding model loaded. It tells which prompts it has embedded."""

    def __init__(self, work: Workspace) -> None:
        config, texts = work.config.partition, prompt_texts(work)
        self._texts = [text for split in SPLITS for text in texts[split]]
        self._encode = sentence_encoder(config.embedder, "cuda" if config.worker.num_gpus else "cpu")
        self._blocks = Blocks(work)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        numbers = batch["number"].tolist()
        self._blocks.keep(numbers, self._encode([self._texts[number] for number in numbers]))
        return {"number": batch["number"]}
