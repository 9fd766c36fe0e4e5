"""The router's baselines: a BERT trained on the same examples, the nearest centroid, and their timing."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from core.draft_key import GENERAL
from core.tasks.classifier import ClassifierConfig
from core.tasks.classifier_training import ClassifierRecipe, Example, train_classifier
from core.tasks.clustering import TaskPartition, find_tasks
from core.tasks.embedding import Matrix, unit
from train_jobs.router_baselines import BERT_LEARNING_RATE, BertMini, NearestCentroid, milliseconds

VOCAB = 60
TWO_KINDS = ("Add 3 apples and 4 apples.", "print the list in Python")


def examples(count: int, seed: int) -> list[Example]:
    """Tasks with ids of their own half, and `general` with ids of both."""
    rng = Random(seed)
    spoken = {"low": range(30), "high": range(30, VOCAB), GENERAL: range(VOCAB)}
    return [
        ([rng.choice(ids) for _ in range(rng.randint(5, 12))], task)
        for _ in range(count)
        for task, ids in spoken.items()
    ]


def test_bert_mini_learns_the_same_examples() -> None:
    known = examples(40, seed=1)
    recipe = ClassifierRecipe(steps=20, batch=12, learning_rate=BERT_LEARNING_RATE, longest=16)
    bert = train_classifier(known, known, VOCAB, recipe, build=BertMini)
    unseen = [(tokens, task) for tokens, task in examples(30, seed=2) if task != GENERAL]
    told = [int(bert.probabilities(tokens)[:2].argmax()) for tokens, _ in unseen]
    right = [bert.tasks[label] == task for label, (_, task) in zip(told, unseen, strict=True)]
    assert sum(right) > 0.9 * len(unseen)


def test_bert_mini_is_256_wide_4_deep_and_reads_no_padding() -> None:
    bert = BertMini(ClassifierConfig(("low", "high"), 0.6, VOCAB)).eval()
    assert (bert.bert.config.hidden_size, bert.bert.config.num_hidden_layers) == (256, 4)
    with torch.inference_mode():
        alone = bert(torch.tensor([[5, 6, 7]]), torch.tensor([3]))
        padded = bert(torch.tensor([[5, 6, 7, 0, 0], [9, 9, 9, 9, 9]]), torch.tensor([3, 5]))
    torch.testing.assert_close(padded[:1], alone)


def letters(texts: list[str]) -> Matrix:
    """A stand-in for a sentence encoder: the counts of letters."""
    return unit(np.array([[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], dtype=np.float32))


@pytest.fixture(scope="module")
def partition() -> TaskPartition:
    texts = [f"{kind} {number}" for kind in TWO_KINDS for number in range(40)]
    return find_tasks(texts, letters(texts), k=2, max_k=2)


def test_the_nearest_centroid_names_the_partitions_task(partition: TaskPartition) -> None:
    nearest = NearestCentroid(lambda texts: letters(list(texts)), partition)
    one, other = nearest.names([f"{kind} 77" for kind in TWO_KINDS])
    assert {one, other} == set(partition.names)
    assert nearest(f"{TWO_KINDS[0]} 78") == one
    assert nearest(f"{TWO_KINDS[1]} 78") == other


def test_every_prompt_is_timed_by_a_call_of_its_own_on_one_thread() -> None:
    seen: list[tuple[int, int]] = []
    threads = torch.get_num_threads()
    p50, p99 = milliseconds(lambda prompt: seen.append((prompt, torch.get_num_threads())), list(range(20)))
    assert 0 < p50 <= p99
    assert [prompt for prompt, _ in seen[-20:]] == list(range(20))
    assert {count for _, count in seen} == {1}
    assert torch.get_num_threads() == threads
