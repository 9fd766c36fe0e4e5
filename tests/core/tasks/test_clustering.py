"""Tasks found in the family's prompts: purity, number, names; and no tasks in noise."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from core.errors import ConfigError
from core.tasks.clustering import TELLING_WORDS, TaskPartition, find_tasks
from core.tasks.embedding import PACKAGED, Encode, Matrix, clean, sentence_encoder, unit
from core.tasks.names import task_names, task_words, telling_words
from tests.family.corpora import TASKS, items

TRAIN, HELD_OUT = 200, 50
SUBSETS = [(2, 3), (1, 2, 4), (0, 1, 2, 3, 4, 5)]


class Prompts(NamedTuple):
    """Prompts, their embeddings and the task each was generated for."""

    texts: list[str]
    embeddings: Matrix
    truth: NDArray[np.int64]

    def of(self, tasks: tuple[int, ...]) -> Prompts:
        kept = np.flatnonzero(np.isin(self.truth, tasks))
        return Prompts([self.texts[at] for at in kept], self.embeddings[kept], self.truth[kept])


@pytest.fixture(scope="module")
def encode() -> Encode:
    return sentence_encoder(PACKAGED)


@pytest.fixture(scope="module")
def train(encode: Encode) -> Prompts:
    texts = [item.prompt for task in TASKS for item in items(task, TRAIN, seed=31)]
    return Prompts(texts, encode(texts), np.repeat(np.arange(len(TASKS)), TRAIN))


@pytest.fixture(scope="module")
def held_out(encode: Encode) -> Prompts:
    texts = [item.prompt for task in TASKS for item in items(task, HELD_OUT, seed=32, split="held_out")]
    return Prompts(texts, encode(texts), np.repeat(np.arange(len(TASKS)), HELD_OUT))


@pytest.fixture(scope="module")
def found(train: Prompts) -> dict[tuple[int, ...], TaskPartition]:
    subsets = {tasks: train.of(tasks) for tasks in SUBSETS}
    return {tasks: find_tasks(prompts.texts, prompts.embeddings) for tasks, prompts in subsets.items()}


def purity(partition: TaskPartition, train: Prompts, held_out: Prompts) -> float:
    """Share of held-out prompts whose cluster has mostly training prompts of their own task."""
    of_group = np.array([np.bincount(train.truth[partition.labels == label]).argmax() for label in range(partition.k)])
    told = of_group[partition.assign(held_out.texts, held_out.embeddings)]
    return float((told == held_out.truth).mean())


@pytest.mark.thorough
def test_held_out_prompts_fall_into_pure_groups(
    found: dict[tuple[int, ...], TaskPartition], train: Prompts, held_out: Prompts
) -> None:
    for tasks, partition in found.items():
        assert purity(partition, train.of(tasks), held_out.of(tasks)) >= 0.90, tasks


@pytest.mark.thorough
def test_the_number_of_tasks_is_right_or_one_more(found: dict[tuple[int, ...], TaskPartition]) -> None:
    over = [partition.k - len(tasks) for tasks, partition in found.items()]
    assert all(extra in (0, 1) for extra in over), over


@pytest.mark.thorough
def test_given_the_true_number_held_out_prompts_fall_into_pure_groups(train: Prompts, held_out: Prompts) -> None:
    partition = find_tasks(train.texts, train.embeddings, k=6, max_k=2)
    assert partition.k == 6
    assert purity(partition, train, held_out) >= 0.90


def test_random_vectors_under_random_words_are_one_task() -> None:
    rng, words = Random(4), [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(300)]
    texts = [" ".join(rng.choices(words, k=12)) for _ in range(600)]
    noise = np.random.default_rng(4).standard_normal((600, 384)).astype(np.float32)
    partition = find_tasks(texts, unit(noise))
    assert partition.k == 1
    assert not partition.labels.any()


@pytest.mark.thorough
def test_shuffled_words_embedded_for_real_are_one_task(encode: Encode, train: Prompts) -> None:
    words = [word for text in train.of((0, 1, 2, 4)).texts for word in telling_words(text)]
    rng = Random(5)
    texts = [" ".join(rng.choices(words, k=12)) for _ in range(400)]
    assert find_tasks(texts, encode(texts)).k == 1


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_partition(train: Prompts, found: dict[tuple[int, ...], TaskPartition]) -> None:
    prompts, first = train.of(SUBSETS[0]), found[SUBSETS[0]]
    again = find_tasks(prompts.texts, prompts.embeddings)
    assert (again.labels == first.labels).all()
    assert (again.centroids == first.centroids).all()
    assert (again.names, again.scores) == (first.names, first.scores)


@pytest.mark.thorough
def test_a_partition_read_back_assigns_alike(
    found: dict[tuple[int, ...], TaskPartition], train: Prompts, tmp_path: Path
) -> None:
    partition = found[SUBSETS[-1]]
    partition.save(tmp_path)
    read = TaskPartition.load(tmp_path)
    assert (read.names, read.telling, read.scores) == (partition.names, partition.telling, partition.scores)
    assert (read.assign(train.texts, train.embeddings) == partition.assign(train.texts, train.embeddings)).all()
    assert (partition.assign(train.texts, train.embeddings) == partition.labels).mean() > 0.999


def test_a_broken_partition_says_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        TaskPartition.load(tmp_path)


@pytest.mark.thorough
def test_tasks_come_largest_first_with_distinct_names(found: dict[tuple[int, ...], TaskPartition]) -> None:
    for partition in found.values():
        sizes = np.bincount(partition.labels)
        assert (np.diff(sizes) <= 0).all()
        assert len(set(partition.names)) == partition.k == len(sizes) == len(partition.centroids)
        assert [len(words) for words in partition.telling] == [TELLING_WORDS] * partition.k


def test_too_few_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 50"):
        find_tasks(["a"] * 49, np.ones((49, 3), dtype=np.float32))


def test_names_come_from_what_tells_tasks_apart() -> None:
    prompts = ["Please balance the reaction"] * 3 + ["请问，苹果的反义词？"] * 3
    first, second = task_names(task_words(prompts, [0, 0, 0, 1, 1, 1], 2))
    assert set(first.split("-")) == {"balance", "reaction"}
    assert "请" not in second
    first_words, second_words = task_words(prompts, [0, 0, 0, 1, 1, 1], 2)
    assert first_words == ["balance", "reaction"]
    assert "苹果" in second_words
    assert task_names(task_words(["of the"], [0], 1)) == ("task-0",)


def test_stop_words_signs_and_numbers_tell_nothing() -> None:
    assert telling_words("The sum of 12 + 7, is (it) prime? 我们的函数") == ["sum", "prime", "们的", "的函", "函数"]


def test_cleaning_keeps_words_and_signs_and_makes_numbers_one() -> None:
    assert clean("Add\t12 + 345\u200b 🙂 now, 加  7！") == clean("Add 8 + 1 now, 加 99！")


def test_a_model_that_cannot_be_loaded_names_the_packaged_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=PACKAGED):
        sentence_encoder(str(tmp_path))
