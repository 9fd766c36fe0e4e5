"""Stage 1, collect: the prompts in their splits, the target's answers, and its log-probabilities for training.

Results are Parquet shards. A shard that exists is complete and is not made again. The prompts of a shard travel to the
worker in a file beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from core.atomic_files import replace
from core.distill.answering import answer
from core.distill.dataset import distil
from core.model.base import Model
from core.model.decoder import AUTO
from core.text.prompt_files import read_prompts
from core.text.tokenizer import Tokenizer
from core.traces.store import Trace, TraceStore, parquet_of, traces_of
from train_jobs.cluster.progress import Progress, ReportProgress
from train_jobs.cluster.workers import spread
from train_jobs.config import RetrainConfig
from train_jobs.drafts.loading import load_target
from train_jobs.prompts.sources import Prompts, UnansweredPrompt, gather, unanswered
from train_jobs.work.artefacts import Split, shard_names
from train_jobs.work.cached_step import fingerprint, settings_of
from train_jobs.work.models import context, model_directory, target_tokenizer
from train_jobs.work.workspace import Workspace

NEEDS = ()
_PROMPTS = ".prompts"  # suffix of the file with the prompts that a worker makes a shard of


class Shard(NamedTuple):
    """A shard to make. `answered`: its prompts are traces. `teacher`: the target's log-probabilities go beside it."""

    name: str
    answered: bool
    teacher: bool


def inputs(config: RetrainConfig) -> list[object]:
    defaults = {"decoder", "vllm"} if config.target.decoder == AUTO else set()  # so that earlier answers are kept
    target = config.target.model_dump(mode="json", exclude={"max_sessions", *defaults})
    weights = fingerprint(model_directory(config.target.model))
    prompts = [fingerprint(source) for source in [*(config.collect.files or ()), config.collect.traces]]
    draft_context = context(config.draft)  # a draft learns from no more of an answer
    return [settings_of(config.collect), target, draft_context, weights, prompts]


def run(work: Workspace, progress: Progress) -> None:
    """Answer all prompts that have no answer yet."""
    config, directory = work.config, work.steps["collect"].start()
    answer_all(config, directory, gather(config, config.target.context), progress)


def answer_all(config: RetrainConfig, directory: Path, splits: dict[Split, Prompts], progress: Progress) -> None:
    """Make the shards of these prompts that are missing in `directory`."""
    draft_context = context(config.draft)
    # a draft learns nothing from an answer whose prompt fills its context
    learned: Any = [prompt for prompt in splits["train"] if len(prompt.prompt_ids) < draft_context]
    missing = [
        prepare(directory, name, prompts[span], teacher=split == "train")
        for split, prompts in (splits | {"train": learned}).items()
        for name, span in shard_names(split, len(prompts), config.collect.shard)
        if not (directory / f"{name}.parquet").exists()
    ]
    with progress.stage("collect", len(missing)) as report:
        for _ in spread(Answerer, config.collect.worker, missing, config, directory, draft_context, report):
            pass
    for file in directory.glob(f"*{_PROMPTS}"):
        file.unlink()


def prepare(directory: Path, name: str, prompts: Prompts, *, teacher: bool) -> Shard:
    """Write the prompts of a shard down for an `Answerer` of this directory."""
    traces = [prompt for prompt in prompts if isinstance(prompt, Trace)]
    content = parquet_of(traces) if traces else msgspec.msgpack.encode(prompts)
    replace(directory / f"{name}{_PROMPTS}", content)
    return Shard(name, bool(traces), teacher)


def answer_file(config: RetrainConfig, file: Path, store: TraceStore, report: ReportProgress) -> int:
    """Answer the prompts of a JSONL file into a trace store; the number of traces."""
    target_context = config.target.context
    prompts = list(unanswered(read_prompts(file), config.collect, target_tokenizer(config), target_context))
    answerer = Answerer(config, file.parent, target_context, report)
    for start in range(0, len(prompts), config.collect.shard):
        store.append(answerer.answers(f"{file.name}-{start}", prompts[start : start + config.collect.shard]))
    return len(prompts)


class Answerer:
    """A worker with the target loaded."""

    def __init__(self, config: RetrainConfig, directory: Path, draft_context: int, report: ReportProgress) -> None:
        self._config = config
        self._directory = directory
        self._draft_context = draft_context
        self._report = report
        torch.set_num_threads(config.collect.worker.num_cpus)

    def work(self, shard: Shard) -> None:
        """Write a shard. The Parquet file comes last: it marks the shard as complete."""
        content = (self._directory / f"{shard.name}{_PROMPTS}").read_bytes()
        if shard.answered:
            traces = traces_of(content)
            self._report(shard.name, len(traces), len(traces), "")
        else:
            traces = self.answers(shard.name, msgspec.msgpack.decode(content, type=list[UnansweredPrompt]))
        if shard.teacher:
            data = distil(self._target, traces, self._config.collect.top, self._draft_context)
            data.save(self._directory / f"{shard.name}.safetensors")
        replace(self._directory / f"{shard.name}.parquet", parquet_of(traces))

    def answers(self, name: str, prompts: Sequence[UnansweredPrompt]) -> list[Trace]:
        """The target's answers, in the order of the prompts; `name` is what the progress view calls them."""
        self._report(name, 0, len(prompts), "")
        traces, tokens = dict[int, Trace](), 0
        requests = [prompt.request() for prompt in prompts]
        for index, record in answer(self._target, self._tokenizer, requests, self._config.target.max_sessions):
            traces[index] = prompts[index].answered(record.output_ids)
            tokens += len(record.output_ids)
            self._report(name, len(traces), len(prompts), f"{tokens} tokens")
        return [traces[index] for index in range(len(prompts))]

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return target_tokenizer(self._config)

    @cached_property
    def _target(self) -> Model:
        return load_target(self._config, self._config.target.max_sessions)
