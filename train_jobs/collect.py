"""First stage: prompts, the target's answers to them, and what it would have said instead at every token.

Enters: the `collect` section, the target. Leaves: Parquet shards by part, and for those to learn from the target's
log-probabilities; a shard that is there is whole and not made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from core.answering import answer
from core.distillation import distil
from core.durable import replace
from core.family import locate
from core.generation import GenerationRequest
from core.model.base import Model
from core.model.causal_lm import load_model
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.model.pages import PAGE_SIZE
from core.prompts import read_prompts
from core.tokenizer import Tokenizer, load_tokenizer
from core.traces import Trace, TraceStore, parquet_of
from train_jobs.collected import shard_names
from train_jobs.config import RetrainConfig
from train_jobs.progress import Progress, Report
from train_jobs.sources import Parts, gather, unanswered
from train_jobs.units import Unit, fingerprint
from train_jobs.workers import spread


class Shard(NamedTuple):
    """Traces for one file; `distilled` where drafts are to learn from them."""

    name: str
    traces: Sequence[Trace]
    distilled: bool


def unit(config: RetrainConfig) -> Unit:
    """Where it is written, and what it depends on."""
    target = resolve(locate(config.target.model))
    source = config.collect.file or config.collect.traces
    seen = fingerprint(source) if source and source.exists() else []
    section = config.collect.model_dump(mode="json", exclude={"worker"})
    model = config.target.model_dump(mode="json", exclude={"max_sessions"})
    return Unit(config.work / "collect", section, model, config.draft, fingerprint(target), seen)


def run(config: RetrainConfig, progress: Progress) -> None:
    """Answer every prompt that has no answer, shard by shard."""
    directory = unit(config).start()
    parts = gather(config, ModelConfig.load(resolve(locate(config.target.model))).context)
    answer_all(config, directory, parts, "collect", progress)


def answer_all(config: RetrainConfig, directory: Path, parts: Parts, stage: str, progress: Progress) -> None:
    """Fill `directory` with shards of these traces; those that are there are whole and stay."""
    context = ModelConfig.load(resolve(locate(config.draft))).context
    # a draft learns nothing from a prompt it cannot see the end of
    parts = parts | {"train": [trace for trace in parts["train"] if trace.prompt_length < context]}
    shards = [
        Shard(name, traces[span], part == "train")
        for part, traces in parts.items()
        for name, span in shard_names(part, len(traces), config.collect.shard)
    ]
    missing = [shard for shard in shards if not (directory / f"{shard.name}.parquet").exists()]
    with progress.stage(stage, len(missing)) as report:
        for _ in spread(Answerer, config.collect.worker, missing, config, directory, context, report):
            pass


def answer_file(config: RetrainConfig, file: Path, store: TraceStore, report: Report) -> int:
    """Answer the prompts of a JSONL file and keep them as traces; the number of them."""
    target = locate(config.target.model)
    context = ModelConfig.load(resolve(target)).context
    asked = list(unanswered(read_prompts(file), config.collect, load_tokenizer(target), context))
    answerer = Answerer(config, file.parent, context, report)
    for start in range(0, len(asked), config.collect.shard):
        store.append(answerer.answered(f"{file.name}-{start}", asked[start : start + config.collect.shard]))
    return len(asked)


class Answerer:
    """A worker with the target loaded."""

    def __init__(self, config: RetrainConfig, directory: Path, draft_context: int, report: Report) -> None:
        self._config = config
        self._directory = directory
        self._draft_context = draft_context
        self._report = report
        torch.set_num_threads(config.collect.worker.num_cpus)

    def work(self, shard: Shard) -> None:
        """Write a shard, the log-probabilities first: the Parquet file tells that both are there."""
        traces = self.answered(shard.name, shard.traces)
        if shard.distilled:
            data = distil(self._target, traces, self._config.collect.top, self._draft_context)
            data.save(self._directory / f"{shard.name}.safetensors")
        replace(self._directory / f"{shard.name}.parquet", parquet_of(traces))

    def answered(self, name: str, traces: Sequence[Trace]) -> list[Trace]:
        """The traces, with answers of the target where there were none."""
        found, asked = list(traces), [number for number, trace in enumerate(traces) if not trace.output_ids]
        requests = [_request(traces[number]) for number in asked]
        self._report(name, 0, len(traces), "")
        done, tokens = len(traces) - len(asked), 0
        for index, record in answer(self._target, self._tokenizer, requests, self._config.target.max_sessions):
            number = asked[index]
            found[number] = msgspec.structs.replace(traces[number], output_ids=record.output_ids)
            done, tokens = done + 1, tokens + len(record.output_ids)
            self._report(name, done, len(traces), f"{tokens} tokens")
        self._report(name, len(traces), len(traces), "")
        return found

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(locate(self._config.target.model))

    @cached_property
    def _target(self) -> Model:
        target = self._config.target
        path = resolve(locate(target.model))
        pages = -(-ModelConfig.load(path).context // PAGE_SIZE) * target.max_sessions
        return load_model(path, dtype=getattr(torch, target.dtype), device=target.device, num_pages=pages)


def _request(trace: Trace) -> GenerationRequest:
    return GenerationRequest(
        tokens=trace.prompt_ids, prompt_length=trace.prompt_length, params=trace.params, choice=trace.choice
    )
