"""What speed is computed with: seconds of target passes and of drafted tokens, measured once where a retraining runs.

They are the quickest of several, as other work may run beside. Costs that were measured again would differ a little, so
that a retraining that is resumed might decide otherwise: it keeps the first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ray
import torch

from core.bundle.manifest import MeasuredCosts
from core.model.draft_vocabulary import DraftVocabulary
from core.policy.cost_model import PassCosts, profile
from core.replay.speed import MOST_ROWS, draft_shape
from core.replay.vocabulary_size import seconds_per_token
from train_jobs.cluster.workers import resources
from train_jobs.config import RetrainConfig, WorkerConfig
from train_jobs.drafts.loading import load_draft, load_target
from train_jobs.work.artefacts import read_json, write_json
from train_jobs.work.models import model_directory, replay_terms

_TIMES = 3


def measured_costs(config: RetrainConfig, drafts: Iterable[Path | None], file: Path) -> MeasuredCosts:
    """Those in `file`, else measured, and written there."""
    if not file.exists():
        shapes = {draft_shape(directory, model_directory(config.draft)): directory for directory in drafts}
        passes = pass_seconds(config)
        tokens = {shape: token_seconds(config, directory) for shape, directory in shapes.items()}
        write_json(file, MeasuredCosts(passes=passes, tokens=tokens))
    return read_json(file, MeasuredCosts)


def pass_seconds(config: RetrainConfig) -> tuple[float, ...]:
    """Of the target over 1, 2, ... rows, by the policy's cost model, on a worker like those that collect."""
    return tuple(_by_worker(config.collect.worker, _pass_seconds, config))


def token_seconds(config: RetrainConfig, directory: Path | None, vocabulary: DraftVocabulary | None = None) -> float:
    """Of a sampled token that a draft proposes (see `load_draft`), on a worker like those that evaluate."""
    return float(_by_worker(config.evaluate.worker, _token_seconds, config, directory, vocabulary))


def _pass_seconds(config: RetrainConfig) -> tuple[float, ...]:
    target, profiles = load_target(config), [PassCosts() for _ in range(_TIMES)]
    for costs in profiles:
        profile(target, time.perf_counter, costs)
    return tuple(min(costs.seconds(rows) for costs in profiles) for rows in range(1, MOST_ROWS + 1))


def _token_seconds(config: RetrainConfig, directory: Path | None, vocabulary: DraftVocabulary | None) -> float:
    model, num_valid = load_draft(config, directory, vocabulary, served=True), replay_terms(config).num_valid
    return min(seconds_per_token(model, num_valid, time.perf_counter, sampled=True) for _ in range(_TIMES))


def _by_worker(worker: WorkerConfig, measure: Any, *arguments: Any) -> Any:
    task: Any = ray.remote(_measure).options(**resources(worker))
    return ray.get(task.remote(worker.num_cpus, measure, arguments))


def _measure(threads: int, measure: Any, arguments: tuple[Any, ...]) -> Any:
    torch.set_num_threads(threads)
    return measure(*arguments)
