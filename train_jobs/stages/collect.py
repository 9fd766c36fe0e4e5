"""Stage 1, collect: the prompts in their splits, the target's answers, and its log-probabilities for training.

Results are Parquet shards. A shard that exists is complete and is not made again. What is asked for travels to the
workers in files beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from core.atomic_files import replace
from core.distill.answering import answer
from core.distill.dataset import distil
from core.generation import GenerationRequest
from core.model.base import Model
from core.model.causal_lm import load_model
from core.text.prompt_files import read_prompts
from core.text.tokenizer import Tokenizer
from core.traces.store import Trace, TraceStore, parquet_of, traces_of
from train_jobs.artefacts import shard_names
from train_jobs.config import RetrainConfig
from train_jobs.models import context, model_directory, pages, target_tokenizer
from train_jobs.progress import Progress, ReportProgress
from train_jobs.prompt_sources import TracesBySplit, gather, unanswered
from train_jobs.workers import spread
from train_jobs.workspace import Workspace

_ASKED = ".asked"  # suffix of a shard with traces that may lack their answer


class Shard(NamedTuple):
    """Asked for: one file of traces. `teacher` adds a file with the target's log-probabilities of their tokens."""

    name: str
    teacher: bool


def run(work: Workspace, progress: Progress) -> None:
    """Answer all prompts that have no answer yet."""
    config, directory = work.config, work.steps["collect"].start()
    answer_all(config, directory, gather(config, context(config.target.model)), "collect", progress)


def answer_all(config: RetrainConfig, directory: Path, splits: TracesBySplit, stage: str, progress: Progress) -> None:
    """Write the shards of these traces that are missing in `directory`."""
    draft_context = context(config.draft)
    # a draft learns nothing from an answer whose prompt fills its context
    splits = splits | {"train": [trace for trace in splits["train"] if trace.prompt_length < draft_context]}
    missing = [
        ask(directory, name, traces[span], teacher=split == "train")
        for split, traces in splits.items()
        for name, span in shard_names(split, len(traces), config.collect.shard)
        if not (directory / f"{name}.parquet").exists()
    ]
    with progress.stage(stage, len(missing)) as report:
        for _ in spread(Answerer, config.collect.worker, missing, config, directory, draft_context, report):
            pass
    for file in directory.glob(f"*{_ASKED}"):
        file.unlink()


def ask(directory: Path, name: str, traces: Sequence[Trace], *, teacher: bool) -> Shard:
    """Write down what is asked for, for an `Answerer` of this directory."""
    replace(directory / f"{name}{_ASKED}", parquet_of(traces))
    return Shard(name, teacher)


def answer_file(config: RetrainConfig, file: Path, store: TraceStore, report: ReportProgress) -> int:
    """Answer the prompts of a JSONL file into a trace store; the number of traces."""
    target_context = context(config.target.model)
    traces = list(unanswered(read_prompts(file), config.collect, target_tokenizer(config), target_context))
    answerer = Answerer(config, file.parent, target_context, report)
    for start in range(0, len(traces), config.collect.shard):
        store.append(answerer.answered(f"{file.name}-{start}", traces[start : start + config.collect.shard]))
    return len(traces)


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
        asked = traces_of((self._directory / f"{shard.name}{_ASKED}").read_bytes())
        traces = self.answered(shard.name, asked)
        if shard.teacher:
            data = distil(self._target, traces, self._config.collect.top, self._draft_context)
            data.save(self._directory / f"{shard.name}.safetensors")
        replace(self._directory / f"{shard.name}.parquet", parquet_of(traces))

    def answered(self, name: str, traces: Sequence[Trace]) -> list[Trace]:
        """The traces, with the target's answer where there was none."""
        found, open_ones = list(traces), [number for number, trace in enumerate(traces) if not trace.output_ids]
        requests = [_request(traces[number]) for number in open_ones]
        self._report(name, 0, len(traces), "")
        done, tokens = len(traces) - len(open_ones), 0
        for index, record in answer(self._target, self._tokenizer, requests, self._config.target.max_sessions):
            number = open_ones[index]
            found[number] = msgspec.structs.replace(traces[number], output_ids=record.output_ids)
            done, tokens = done + 1, tokens + len(record.output_ids)
            self._report(name, done, len(traces), f"{tokens} tokens")
        self._report(name, len(traces), len(traces), "")
        return found

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return target_tokenizer(self._config)

    @cached_property
    def _target(self) -> Model:
        target = self._config.target
        num_pages = pages(target.model) * target.max_sessions
        dtype = getattr(torch, target.dtype)
        return load_model(model_directory(target.model), dtype=dtype, device=target.device, num_pages=num_pages)


def _request(trace: Trace) -> GenerationRequest:
    return GenerationRequest(
        tokens=trace.prompt_ids, prompt_length=trace.prompt_length, params=trace.params, choice=trace.choice
    )
