"""The target's answers to the prompts of narrow tasks, in shards: one that exists is complete.

A prompt's split, seed and temperature depend on its place in its task alone, so tasks can be added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from core.atomic_files import replace
from core.distill.answering import answer
from core.distill.dataset import DistillationSet, distil
from core.model.base import Model
from core.model.causal_lm import load_model
from core.model.config import ModelConfig
from core.model.pages import PAGE_SIZE
from core.model_names import locate
from core.sampling.params import SamplingParams
from core.text.tokenizer import Tokenizer, load_tokenizer
from core.traces.store import Trace, parquet_of, traces_of
from tests.bench.narrow_tasks import NarrowTask
from train_jobs.prompts.sources import UnansweredPrompt
from train_jobs.work.artefacts import Split

TEMPERATURES = (0.0, 0.7, 1.0)  # in turn
_SESSIONS = 24  # answers in one batch
_TOP = 64  # log-probabilities of the target kept per token
_LONGEST = 512  # tokens of a prompt with its answer, as far as pages are made for all sessions


class Sizes(NamedTuple):
    """Prompts of each task by split, and of a shard; and the most tokens of an answer, if a task allows as many."""

    test: int = 40
    stop: int = 20
    train: int = 300
    shard: int = 60
    longest_answer: int = 1024

    @property
    def prompts(self) -> int:
        return self.test + self.stop + self.train

    def spans(self) -> Iterator[tuple[Split, int, int]]:
        """Each shard of a task: its split and its first and last prompt; those that judge come first."""
        first = 0
        splits: tuple[tuple[Split, int], ...] = (("test", self.test), ("stop", self.stop), ("train", self.train))
        for split, count in splits:
            for start in range(first, first + count, self.shard):
                yield split, start, min(start + self.shard, first + count)
            first += count


class Shard(NamedTuple):
    """The prompts from `first` up to `last` of a task, all of one split."""

    task: NarrowTask
    split: Split
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.task.name}-{self.split}-{self.first:04d}"


class Answers:
    """Those of some tasks in one directory. `prompts` is where the files lie that some tasks read."""

    def __init__(self, directory: Path, target: str, prompts: Path | None, sizes: Sizes) -> None:
        self._directory, self._name, self._prompts, self._sizes = directory, target, prompts, sizes
        directory.mkdir(parents=True, exist_ok=True)

    def missing(self, tasks: Sequence[NarrowTask]) -> list[Shard]:
        return [shard for task in tasks for shard in self._shards(task) if not self._file(shard).exists()]

    def make(self, shard: Shard, report: Callable[[int], object]) -> None:
        """Answer the prompts of a shard; `report` is told how many are."""
        prompts, traces = self._unanswered(shard), dict[int, Trace]()
        for index, record in answer(self._target, self._tokenizer, [prompt.request() for prompt in prompts], _SESSIONS):
            traces[index] = prompts[index].answered(record.output_ids)
            report(len(traces))
        in_order = [traces[index] for index in range(len(prompts))]
        if shard.split == "train":
            distil(self._target, in_order, _TOP, self._target.context).save(self._file(shard, ".safetensors"))
        replace(self._file(shard), parquet_of(in_order))

    def traces(self, task: NarrowTask, split: Split) -> list[Trace]:
        return [
            trace
            for shard in self._shards(task)
            if shard.split == split
            for trace in traces_of(self._file(shard).read_bytes())
        ]

    def dataset(self, tasks: Sequence[NarrowTask]) -> DistillationSet:
        """What is learned from, of all these tasks."""
        shards = [shard for task in tasks for shard in self._shards(task) if shard.split == "train"]
        return DistillationSet.join([DistillationSet.load(self._file(shard, ".safetensors")) for shard in shards])

    def _shards(self, task: NarrowTask) -> list[Shard]:
        return [Shard(task, *span) for span in self._sizes.spans()]

    def _file(self, shard: Shard, suffix: str = ".parquet") -> Path:
        return self._directory / f"{shard.name}{suffix}"

    def _unanswered(self, shard: Shard) -> list[UnansweredPrompt]:
        texts = shard.task.texts(self._sizes.prompts, self._prompts)
        return [self._prompt(shard.task, number, texts[number]) for number in range(shard.first, shard.last)]

    def _prompt(self, task: NarrowTask, number: int, text: str) -> UnansweredPrompt:
        params = SamplingParams(
            seed=int.from_bytes(hashlib.sha256(f"{task.name}/{number}".encode()).digest()[:4], "big"),
            max_tokens=min(task.max_tokens, self._sizes.longest_answer),
            temperature=TEMPERATURES[number % len(TEMPERATURES)],
        )
        tokens = tuple(self._tokenizer.encode_chat(task.messages(text)))
        return UnansweredPrompt(prompt_ids=tokens, params=params, task=task.name)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(locate(self._name))

    @cached_property
    def _target(self) -> Model:
        directory = Path(locate(self._name))
        longest = max(ModelConfig.load(directory).context, _SESSIONS * _LONGEST)
        return load_model(directory, dtype=torch.bfloat16, num_pages=-(-longest // PAGE_SIZE))
