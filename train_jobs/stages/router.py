"""Stage 4, router: the task classifier, trained on the tasks that the partition found, and compared with baselines.

Many training prompts are reworded. The rules that reword prompts for the threshold and for the report are different
ones. If all prompts are one task, there is nothing to route and no router is made.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import ray

from core.distill.traces import Trace
from core.draft_key import GENERAL
from core.tasks.classifier import Network, TaskClassifier
from core.tasks.classifier_training import Build, ClassifierRecipe, Example, accuracy, train_classifier, winner
from core.tasks.clustering import TaskPartition
from core.tasks.embedding import sentence_encoder
from core.tasks.rewording_rules import AUGMENTING, VALIDATING
from core.text.tokenizer import Tokenizer
from train_jobs.artefacts import ROUTING, write_json
from train_jobs.config import RetrainConfig, RouterConfig
from train_jobs.findings import ClassifierFigures, Routing
from train_jobs.labelled_prompts import GeneralPrompts, LabelledPrompt, general_prompts, of_traces, reworded
from train_jobs.models import target_tokenizer
from train_jobs.progress import Progress, ReportProgress
from train_jobs.router_baselines import BERT_LEARNING_RATE, BertMini, NearestCentroid, milliseconds
from train_jobs.workers import resources
from train_jobs.workspace import Workspace

OnStep = Callable[[int, int, str], None]  # done, total, note
_ROUTER, _BERT, _CENTROID = "router", "BERT-mini", "nearest centroid"
_VALIDATION_SHARE = 0.1
_REWORDINGS = 2  # of every training prompt
_TIMED = 200  # prompts
_log = logging.getLogger(__name__)


class RouterData(NamedTuple):
    """The partition, training traces with their tasks, and test traces."""

    partition: TaskPartition
    train: list[Trace]
    labels: list[int]
    test: list[Trace]


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
    tokenizer, partition = target_tokenizer(config), data.partition
    nearest = NearestCentroid(sentence_encoder(config.partition.embedder), partition)
    general = general_prompts(config.router.general, config.router.general_prompts, tokenizer)
    known = of_traces(data.train, [partition.names[label] for label in data.labels], tokenizer)
    trained = _trained(config.router, _datasets(known, general, tokenizer), tokenizer, on_step)
    trained[_ROUTER].save(directory)
    tasks = nearest.names([tokenizer.prompt_text(trace.prompt_ids) for trace in data.test])
    test = of_traces(data.test, tasks, tokenizer)
    reworded_test = reworded(test, 2, VALIDATING, tokenizer)
    figures = [_classifier_figures(name, classifier, test, reworded_test) for name, classifier in trained.items()]
    if config.router.baselines:
        figures.append(_centroid_figures(nearest, test, reworded_test))
    classes = [*partition.names, GENERAL]
    confusion = _confusion(trained[_ROUTER], test + general.test, classes)
    return Routing(classes=classes, confusion=confusion, classifiers=figures)


def _datasets(
    known: list[LabelledPrompt], general: GeneralPrompts, tokenizer: Tokenizer
) -> tuple[list[LabelledPrompt], list[LabelledPrompt]]:
    """Training and validation prompts, each set with rewordings by its own rules."""
    known = Random(0).sample(known, len(known))
    num_validation = round(_VALIDATION_SHARE * len(known))
    learned, validation = list(known[num_validation:]), known[:num_validation] + general.validation
    for seed in range(_REWORDINGS):
        learned += reworded(known[num_validation:], seed, AUGMENTING, tokenizer)
    # each general prompt once: with as many copies as a task gets, prompts a little unlike a task's go to `general`
    learned += general.train[::2] + reworded(general.train[1::2], 0, AUGMENTING, tokenizer)
    return learned, validation + reworded(validation, 1, VALIDATING, tokenizer)


def _trained(
    settings: RouterConfig,
    datasets: tuple[list[LabelledPrompt], list[LabelledPrompt]],
    tokenizer: Tokenizer,
    on_step: OnStep,
) -> dict[str, TaskClassifier]:
    """The router and, if baselines are wanted, BERT-mini, trained on the same examples for the same steps."""
    recipe = ClassifierRecipe(steps=settings.steps, batch=settings.batch, longest=settings.longest)
    kinds: dict[str, tuple[Build, ClassifierRecipe]] = {_ROUTER: (Network, recipe)}
    if settings.baselines:
        kinds[_BERT] = (BertMini, replace(recipe, learning_rate=BERT_LEARNING_RATE))
    learned, validation = (_examples(prompts) for prompts in datasets)
    trained, total = {}, settings.steps * len(kinds)
    for before, (name, (build, of_kind)) in zip(range(0, total, settings.steps), kinds.items(), strict=True):
        report = partial(_report_step, on_step, before, total, name)
        found = train_classifier(learned, validation, tokenizer.num_valid, of_kind, build=build, on_step=report)
        _log.info("%s: %.3f of %d validation prompts right", name, accuracy(found, validation), len(validation))
        trained[name] = found
    return trained


def _report_step(on_step: OnStep, before: int, total: int, note: str, step: int) -> None:
    on_step(before + step, total, note)


def _classifier_figures(
    name: str, classifier: TaskClassifier, test: list[LabelledPrompt], reworded_test: list[LabelledPrompt]
) -> ClassifierFigures:
    p50, p99 = milliseconds(classifier.predict, [prompt.ids for prompt in test[:_TIMED]])
    agreement, on_reworded = (accuracy(classifier, _examples(prompts)) for prompts in (test, reworded_test))
    return ClassifierFigures(name=name, agreement=agreement, reworded=on_reworded, p50_ms=p50, p99_ms=p99)


def _centroid_figures(
    nearest: NearestCentroid, test: list[LabelledPrompt], reworded_test: list[LabelledPrompt]
) -> ClassifierFigures:
    p50, p99 = milliseconds(nearest, [prompt.text for prompt in test[:_TIMED]])
    agreement, on_reworded = (_share_right(nearest, prompts) for prompts in (test, reworded_test))
    return ClassifierFigures(name=_CENTROID, agreement=agreement, reworded=on_reworded, p50_ms=p50, p99_ms=p99)


def _share_right(nearest: NearestCentroid, prompts: list[LabelledPrompt]) -> float:
    predicted = nearest.names([prompt.text for prompt in prompts])
    return sum(name == prompt.task for name, prompt in zip(predicted, prompts, strict=True)) / len(prompts)


def _confusion(router: TaskClassifier, prompts: list[LabelledPrompt], classes: list[str]) -> list[list[int]]:
    counts = Counter((prompt.task, winner(router, prompt.ids)) for prompt in prompts)
    return [[counts[true, predicted] for predicted in classes] for true in classes]


def _examples(prompts: list[LabelledPrompt]) -> list[Example]:
    return [(prompt.ids, prompt.task) for prompt in prompts]
