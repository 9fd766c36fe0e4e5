"""The router stage: the task classifier learns what the partition calls the prompts, and is compared with its rivals.

In: the partition, training and held-out traces. Out: a router directory, and `Routing` for the report.
Much of what it learns from is reworded; threshold and report are by rewordings of rules it never learned from.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from core.classifier import GENERAL, Network, TaskClassifier
from core.classifier_training import Build, Example, Recipe, accuracy, train_classifier, winner
from core.embedding import sentence_encoder
from core.family import locate
from core.partition import TaskPartition
from core.rewording_rules import AUGMENTING, VALIDATING
from core.rivals import BERT_LEARNING_RATE, BertMini, NearestCentroid, milliseconds
from core.tokenizer import Tokenizer, load_tokenizer
from core.traces import Trace
from train_jobs.config import RetrainConfig
from train_jobs.findings import Classifier, Routing
from train_jobs.labelled_prompts import General, Labelled, general_prompts, of_traces, reworded

Report = Callable[[int, int, str], None]
_ROUTER, _BERT, _CENTROID = "router", "BERT-mini", "nearest centroid"
_VALIDATION_SHARE = 0.1
_REWORDINGS = 2  # of every prompt to learn from
_TIMED = 200  # prompts
_log = logging.getLogger(__name__)


def fit_router(
    config: RetrainConfig,
    partition_directory: Path,
    train: Sequence[Trace],
    labels: Sequence[int],
    held_out: Sequence[Trace],
    directory: Path,
    report: Report,
) -> Routing:
    """Train the router on `train` and its partition `labels`, write it to `directory`, measure it on `held_out`.

    `report(done, total, note)` follows the training steps. On one thread the same inputs give the same bytes.
    Raises `ConfigError` for a model, partition or file of general prompts that cannot be read.
    """
    tokenizer = load_tokenizer(locate(config.target.model))
    partition = TaskPartition.load(partition_directory)
    nearest = NearestCentroid(sentence_encoder(config.partition.embedder), partition)
    general = general_prompts(config.router.general, config.router.general_prompts, tokenizer)
    known = of_traces(train, [partition.names[label] for label in labels], tokenizer)
    trained = _trained(config, _parts(known, general, tokenizer), tokenizer, report)
    trained[_ROUTER].save(directory)
    tasks = nearest.names([tokenizer.prompt_text(trace.prompt_ids) for trace in held_out])
    test = of_traces(held_out, tasks, tokenizer)
    again = reworded(test, 2, VALIDATING, tokenizer)
    classifiers = [_judged(name, classifier, test, again) for name, classifier in trained.items()]
    if config.router.rivals:
        classifiers.append(_judged_centroid(nearest, test, again))
    classes = [*partition.names, GENERAL]
    confusion = _confusion(trained[_ROUTER], test + general.test, classes)
    return Routing(classes=classes, confusion=confusion, classifiers=classifiers)


def _parts(known: list[Labelled], general: General, tokenizer: Tokenizer) -> tuple[list[Labelled], list[Labelled]]:
    """What is learned from, with rewordings, and what validates, with rewordings by the other rules."""
    known = Random(0).sample(known, len(known))
    apart = round(_VALIDATION_SHARE * len(known))
    learned, validation = list(known[apart:]), known[:apart] + general.validation
    for seed in range(_REWORDINGS):
        learned += reworded(known[apart:], seed, AUGMENTING, tokenizer)
    # once each: with as many copies as the tasks get, `general` takes what is only a little unlike a task's prompts
    learned += general.train[::2] + reworded(general.train[1::2], 0, AUGMENTING, tokenizer)
    return learned, validation + reworded(validation, 1, VALIDATING, tokenizer)


def _trained(
    config: RetrainConfig, parts: tuple[list[Labelled], list[Labelled]], tokenizer: Tokenizer, report: Report
) -> dict[str, TaskClassifier]:
    """The router, and BERT-mini if rivals are wanted: by the same examples and steps."""
    settings = config.router
    recipe = Recipe(steps=settings.steps, batch=settings.batch, longest=settings.longest)
    kinds: dict[str, tuple[Build, Recipe]] = {_ROUTER: (Network, recipe)}
    if settings.rivals:
        kinds[_BERT] = (BertMini, replace(recipe, learning_rate=BERT_LEARNING_RATE))
    learned, validation = (_examples(part) for part in parts)
    trained, total = {}, settings.steps * len(kinds)
    for before, (name, (build, of_kind)) in zip(range(0, total, settings.steps), kinds.items(), strict=True):
        on_step = partial(_step, report, before, total, name)
        found = train_classifier(learned, validation, tokenizer.num_valid, of_kind, build=build, on_step=on_step)
        _log.info("%s: %.3f of %d validation prompts right", name, accuracy(found, validation), len(validation))
        trained[name] = found
    return trained


def _step(report: Report, before: int, total: int, note: str, step: int) -> None:
    report(before + step, total, note)


def _judged(name: str, classifier: TaskClassifier, test: list[Labelled], again: list[Labelled]) -> Classifier:
    p50, p99 = milliseconds(classifier.predict, [prompt.ids for prompt in test[:_TIMED]])
    agreement, on_reworded = (accuracy(classifier, _examples(prompts)) for prompts in (test, again))
    return Classifier(name=name, agreement=agreement, reworded=on_reworded, p50_ms=p50, p99_ms=p99)


def _judged_centroid(nearest: NearestCentroid, test: list[Labelled], again: list[Labelled]) -> Classifier:
    p50, p99 = milliseconds(nearest, [prompt.text for prompt in test[:_TIMED]])
    agreement, on_reworded = (_share_right(nearest, prompts) for prompts in (test, again))
    return Classifier(name=_CENTROID, agreement=agreement, reworded=on_reworded, p50_ms=p50, p99_ms=p99)


def _share_right(nearest: NearestCentroid, prompts: list[Labelled]) -> float:
    told = nearest.names([prompt.text for prompt in prompts])
    return sum(name == prompt.name for name, prompt in zip(told, prompts, strict=True)) / len(prompts)


def _confusion(router: TaskClassifier, prompts: list[Labelled], classes: list[str]) -> list[list[int]]:
    went = Counter((prompt.name, winner(router, prompt.ids)) for prompt in prompts)
    return [[went[true, told] for told in classes] for true in classes]


def _examples(prompts: list[Labelled]) -> list[Example]:
    return [(prompt.ids, prompt.name) for prompt in prompts]
