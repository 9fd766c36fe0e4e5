"""The training of the task classifier, and the calibration of its threshold.

Examples are prompts as token ids with their task, or `general` for prompts of no task. On one thread the same examples
and recipe give the same weights.

To avoid overconfidence on prompts unlike the examples, labels are smoothed, some ids are replaced by random ones, some
rows are noise labelled `general`, and some are spliced from two examples and labelled in proportion.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import msgspec
import torch
from torch import nn
from torch.nn import functional

from core.draft_key import GENERAL
from core.tasks.classifier import ClassifierConfig, Network, TaskClassifier, window

Example = tuple[Sequence[int], str]  # a prompt's token ids, its task
Row = tuple[list[int], torch.Tensor]  # token ids, target probability of every class
Build = Callable[[ClassifierConfig], nn.Module]  # called as Network is: tokens [n, longest], lengths [n] -> logits
OnStep = Callable[[int], None]
_SORTED_BATCHES = 8
_LOWEST_THRESHOLD = 0.6
_ROUTED_GENERAL = 0.02  # share of held-out general prompts that may be routed to a task


@dataclass(frozen=True, slots=True)
class ClassifierRecipe:
    """The hyperparameters; the defaults are the shipped router's."""

    steps: int = 300
    batch: int = 64
    learning_rate: float = 4e-3
    smoothing: float = 0.05
    replaced: float = 0.1  # share of ids
    cropped: float = 0.3  # share of rows, each to half or more of itself
    spliced: float = 0.25  # share of rows
    noise: float = 0.06  # share of rows
    longest: int = 64  # ids read of a prompt; the cost of a step grows with the square
    seed: int = 0


def train_classifier(
    examples: Sequence[Example],
    validation: Sequence[Example],
    vocab_size: int,
    recipe: ClassifierRecipe | None = None,
    *,
    build: Build = Network,
    on_step: OnStep | None = None,
) -> TaskClassifier:
    """Train a network on `examples`, then set the threshold on the general prompts of `validation`.

    `on_step` is called after every step with the number of steps done. Raises ValueError if no example has a task.
    """
    recipe = recipe or ClassifierRecipe()
    tasks = tuple(sorted({task for _, task in examples} - {GENERAL}))
    if not tasks:
        raise ValueError("a classifier needs examples of at least one task")
    config = ClassifierConfig(tasks, _LOWEST_THRESHOLD, vocab_size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = build(config)
        _descend(network, _rows(examples, config, recipe), recipe, on_step)
    network.to(torch.bfloat16).to(torch.float32)  # calibrate the weights as they are saved
    return calibrate(TaskClassifier(config, network), validation)


def calibrate(classifier: TaskClassifier, validation: Sequence[Example]) -> TaskClassifier:
    """The classifier with the lowest threshold, at least 0.6, that routes at most 2 % of general prompts to a task.

    Without general prompts the threshold is 0.6.
    """
    confidence = sorted(
        (float(classifier.probabilities(tokens)[:-1].max()) for tokens, task in validation if task == GENERAL),
        reverse=True,
    )
    limit = confidence[int(_ROUTED_GENERAL * len(confidence))] if confidence else 0.0
    threshold = max(_LOWEST_THRESHOLD, math.nextafter(limit, math.inf))  # a prompt at the threshold is routed
    config = msgspec.structs.replace(classifier.config, threshold=threshold)
    return TaskClassifier(config, classifier.network)


def accuracy(classifier: TaskClassifier, examples: Sequence[Example]) -> float:
    """Share of the examples whose class gets most of the prior."""
    return sum(winner(classifier, tokens) == task for tokens, task in examples) / len(examples)


def winner(classifier: TaskClassifier, tokens: Sequence[int]) -> str:
    """The class with most of the prior; `general` if the classifier abstains."""
    prior = classifier.predict(tokens)
    return max(prior, key=lambda name: prior[name])


def _descend(network: nn.Module, rows: Iterator[Row], recipe: ClassifierRecipe, on_step: OnStep | None) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), lr=recipe.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.learning_rate, total_steps=recipe.steps)
    network.train()
    for step, (tokens, lengths, targets) in enumerate(itertools.islice(_batches(rows, recipe), recipe.steps), 1):
        loss = functional.cross_entropy(network(tokens, lengths), targets, label_smoothing=recipe.smoothing)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if on_step:
            on_step(step)


def _rows(examples: Sequence[Example], config: ClassifierConfig, recipe: ClassifierRecipe) -> Iterator[Row]:
    """Endless augmented examples."""
    rng = Random(recipe.seed)
    classes = (*config.tasks, GENERAL)
    targets = dict(zip(classes, torch.eye(len(classes)), strict=True))
    while True:
        tokens, target = _draw(rng, examples, targets, recipe)
        replaced = recipe.replaced
        if rng.random() < recipe.spliced:
            tokens, target = _splice((tokens, target), _draw(rng, examples, targets, recipe), rng.uniform(0.2, 0.8))
        elif rng.random() < recipe.noise:
            replaced, target = 1.0, targets[GENERAL]
        yield [rng.randrange(config.vocab_size) if rng.random() < replaced else token for token in tokens], target


def _draw(
    rng: Random, examples: Sequence[Example], targets: Mapping[str, torch.Tensor], recipe: ClassifierRecipe
) -> Row:
    tokens, task = rng.choice(examples)
    if rng.random() < recipe.cropped:
        length = math.ceil(rng.uniform(0.5, 1) * len(tokens))
        start = rng.randint(0, len(tokens) - length)
        tokens = tokens[start : start + length]
    return window(tokens, recipe.longest), targets[task]


def _splice(first: Row, second: Row, cut: float) -> Row:
    """The beginning of one row and the end of another, labelled in proportion."""
    head, tail = first[0][: math.ceil(cut * len(first[0]))], second[0][math.floor(cut * len(second[0])) :]
    share = len(head) / (len(head) + len(tail))
    return head + tail, share * first[1] + (1 - share) * second[1]


def _batches(
    rows: Iterator[Row], recipe: ClassifierRecipe
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Tokens [n, longest], lengths [n], targets [n, classes]; rows of similar length, as the scan is sequential."""
    rng = Random(recipe.seed)
    while True:
        block = sorted(itertools.islice(rows, recipe.batch * _SORTED_BATCHES), key=lambda row: len(row[0]))
        cuts = [block[start : start + recipe.batch] for start in range(0, len(block), recipe.batch)]
        rng.shuffle(cuts)
        for cut in cuts:
            tokens = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids, _ in cut], batch_first=True)
            yield tokens, torch.tensor([len(ids) for ids, _ in cut]), torch.stack([target for _, target in cut])
