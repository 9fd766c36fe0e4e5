"""Stage 4, router: the task classifier, trained on the tasks that the partition found.

Many training prompts are reworded. The rules that reword prompts for the threshold and for the report are different
ones. If all prompts are one task, there is nothing to route and no router is made.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import ray

from core.draft_key import GENERAL
from core.tasks.classifier import TaskClassifier
from core.tasks.classifier_training import ClassifierRecipe, Example, accuracy, train_classifier, winner
from core.tasks.clustering import TaskPartition
from core.tasks.embedding import sentence_encoder
from core.tasks.rewording_rules import AUGMENTING, VALIDATING
from core.text.tokenizer import Tokenizer
from core.traces.store import Trace
from train_jobs.cluster.progress import Progress, ReportProgress
from train_jobs.cluster.workers import resources
from train_jobs.config import RetrainConfig
from train_jobs.prompts.labelled import GeneralPrompts, LabelledPrompt, general_prompts, of_traces, reworded
from train_jobs.work.artefacts import ROUTING, write_json
from train_jobs.work.cached_step import fingerprint, settings_of
from train_jobs.work.findings import ClassifierFigures, Routing
from train_jobs.work.models import target_tokenizer
from train_jobs.work.workspace import Workspace

NEEDS = ("partition",)
OnStep = Callable[[int, int, str], None]  # done, total, note
_VALIDATION_SHARE = 0.1
_REWORDINGS = 2  # of every training prompt
_TIMED, _WARM_UP = 200, 3  # prompts
_log = logging.getLogger(__name__)


class RouterData(NamedTuple):
    """The partition, training traces with their tasks, and test traces."""

    partition: TaskPartition
    train: list[Trace]
    labels: list[int]
    test: list[Trace]


def inputs(config: RetrainConfig) -> list[object]:
    return [settings_of(config.router), fingerprint(config.router.general)]


def run(work: Workspace, progress: Progress) -> None:
    """Train the router, unless there is only one task."""
    work.steps["router"].start()
    with progress.stage("router", 1) as report:
        if work.tasks().routed:
            fit: Any = ray.remote(_fit).options(**resources(work.config.router.worker))
            ray.get(fit.remote(work, report))


def _fit(work: Workspace, report: ReportProgress) -> None:
    import torch

    torch.set_num_threads(work.config.router.worker.num_cpus)
    tasks = work.tasks()
    data = RouterData(tasks.partition, work.traces("train"), tasks.labels("train"), work.traces("test"))
    routing = fit_router(work.config, data, work.router(), partial(report, "router"))
    write_json(work.steps["router"].directory / ROUTING, routing)


def fit_router(config: RetrainConfig, data: RouterData, directory: Path, on_step: OnStep) -> Routing:
    """Train the router into `directory` and measure it on the test traces.

    On one thread the same inputs give the same bytes. Raises `ConfigError` for a model or a file of general prompts
    that cannot be read.
    """
    settings, tokenizer, partition = config.router, target_tokenizer(config), data.partition
    encode = sentence_encoder(config.partition.embedder)
    general = general_prompts(settings.general, tokenizer)
    train = of_traces(data.train, [partition.names[label] for label in data.labels], tokenizer)
    learned, validation = (_examples(prompts) for prompts in _datasets(train, general, tokenizer))
    recipe = ClassifierRecipe(steps=settings.steps, batch=settings.batch, longest=settings.longest)
    router = train_classifier(
        learned,
        validation,
        tokenizer.num_valid,
        recipe,
        on_step=lambda step: on_step(step, settings.steps, "router"),
    )
    _log.info("router: %.3f of %d validation prompts right", accuracy(router, validation), len(validation))
    router.save(directory)
    texts = [tokenizer.prompt_text(trace.prompt_ids) for trace in data.test]
    labels = partition.assign(texts, encode(texts)).tolist()
    test = of_traces(data.test, [partition.names[label] for label in labels], tokenizer)
    classes = [*partition.names, GENERAL]
    return Routing(
        classes=classes,
        confusion=_confusion(router, test + general.test, classes),
        classifiers=[_figures(router, test, reworded(test, 2, VALIDATING, tokenizer))],
    )


def _datasets(
    train: list[LabelledPrompt], general: GeneralPrompts, tokenizer: Tokenizer
) -> tuple[list[LabelledPrompt], list[LabelledPrompt]]:
    """Training and validation prompts, each set with rewordings by its own rules."""
    shuffled = Random(0).sample(train, len(train))
    num_validation = round(_VALIDATION_SHARE * len(train))
    learned, validation = shuffled[num_validation:], shuffled[:num_validation] + general.validation
    for seed in range(_REWORDINGS):
        learned = learned + reworded(shuffled[num_validation:], seed, AUGMENTING, tokenizer)
    # each general prompt once: with as many copies as a task gets, prompts a little unlike a task's go to `general`
    learned += general.train[::2] + reworded(general.train[1::2], 0, AUGMENTING, tokenizer)
    return learned, validation + reworded(validation, 1, VALIDATING, tokenizer)


def _figures(
    router: TaskClassifier, test: list[LabelledPrompt], reworded_test: list[LabelledPrompt]
) -> ClassifierFigures:
    p50, p99 = milliseconds(router.predict, [prompt.ids for prompt in test[:_TIMED]])
    agreement, on_reworded = (accuracy(router, _examples(prompts)) for prompts in (test, reworded_test))
    return ClassifierFigures(name="router", agreement=agreement, reworded=on_reworded, p50_ms=p50, p99_ms=p99)


def milliseconds(classify: Callable[[Sequence[int]], object], prompts: Sequence[Sequence[int]]) -> tuple[float, float]:
    """p50 and p99 of the time per prompt, one prompt per call, on one thread."""
    import torch

    threads, durations = torch.get_num_threads(), list[float]()
    torch.set_num_threads(1)
    try:
        for prompt in [*prompts[:_WARM_UP], *prompts]:
            began = time.perf_counter()
            classify(prompt)
            durations.append(1e3 * (time.perf_counter() - began))
    finally:
        torch.set_num_threads(threads)
    p50, p99 = np.percentile(durations[-len(prompts) :], (50, 99)).tolist()
    return p50, p99


def _confusion(router: TaskClassifier, prompts: list[LabelledPrompt], classes: list[str]) -> list[list[int]]:
    counts = Counter((prompt.task, winner(router, prompt.ids)) for prompt in prompts)
    return [[counts[true, predicted] for predicted in classes] for true in classes]


def _examples(prompts: list[LabelledPrompt]) -> list[Example]:
    return [(prompt.ids, prompt.task) for prompt in prompts]
