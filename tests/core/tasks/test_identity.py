"""Tasks keep their names from one partition to the next; what became of the others is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.errors import ConfigError
from core.tasks.clustering import Labels
from core.tasks.embedding import Matrix, unit
from core.tasks.identity import NEAR, Recognised, TaskCentroids, TaskChange, compare, recognise

DIMENSIONS, NOISE = 32, 0.08
Prompts = tuple[Labels, Matrix]


def prompts(*groups: tuple[Matrix, int], seed: int = 0) -> Prompts:
    """Noisy points around each group's direction, so many of each; the label is the place of the group."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(groups)), [size for _, size in groups])
    centres = np.stack([direction for direction, _ in groups])[labels]
    return labels, unit(centres + NOISE * rng.standard_normal(centres.shape))


def direction(axis: int) -> Matrix:
    return np.eye(DIMENSIONS, dtype=np.float32)[axis]


def beside(one: Matrix, axis: int, cosine: float) -> Matrix:
    """A unit vector with this cosine, turned towards an axis, or away from it if negative."""
    turned: Matrix = abs(cosine) * one + np.copysign(np.sqrt(1 - cosine**2), cosine) * direction(axis)
    return turned


MATHS, CODE, CHAT = direction(0), direction(1), direction(2)
SUMS, PROOFS = beside(MATHS, 3, 0.9), beside(MATHS, 3, -0.9)  # two kinds of maths; their own cosine is .62


def known(found: Prompts, *names: str, embedder: str = "one") -> TaskCentroids:
    return TaskCentroids.of(embedder, names, *found)


def told(old: TaskCentroids, found: Prompts, *names: str, embedder: str = "one") -> Recognised:
    return recognise(old, known(found, *names, embedder=embedder), *found)


def kept(*names: str) -> set[TaskChange]:
    return {TaskChange("kept", name, name) for name in names}


THREE = known(prompts((MATHS, 90), (CODE, 60), (CHAT, 30)), "maths", "code", "chat")


def test_the_same_tasks_keep_their_names_in_any_order() -> None:
    found = told(THREE, prompts((CHAT, 80), (MATHS, 60), (CODE, 20), seed=1), "a", "b", "c")
    assert found.names == ("chat", "maths", "code")
    assert set(found.changes) == kept("maths", "code", "chat")


def test_a_new_task_gets_no_name_that_a_task_had() -> None:
    two = known(prompts((MATHS, 90), (CODE, 60)), "maths", "chat")
    found = told(two, prompts((MATHS, 90), (CHAT, 70), (CODE, 60), seed=1), "sums", "chat", "python")
    assert found.names == ("maths", "chat-2", "chat")
    assert set(found.changes) == kept("maths", "chat") | {TaskChange("new", None, "chat-2")}


def test_a_new_task_beside_an_old_one_is_not_taken_for_it_however_large() -> None:
    """All prompts of it lie nearest to the old one, at a cosine below the threshold."""
    neighbour = beside(MATHS, 4, NEAR - 0.05)
    mixed = prompts((neighbour, 500), (MATHS, 60), (CODE, 60), (CHAT, 30), seed=1)
    found = told(THREE, mixed, "a", "b", "c", "d")
    assert found.names == ("a", "maths", "code", "chat")
    assert TaskChange("new", None, "a") in found.changes


def test_of_a_split_task_the_largest_part_keeps_the_name() -> None:
    labels, points = prompts((SUMS, 60), (PROOFS, 50), (CODE, 60))
    whole = known((np.maximum(labels - 1, 0), points), "maths", "code")
    found = told(whole, prompts((PROOFS, 40), (SUMS, 70), (CODE, 60), seed=1), "proofs", "sums", "python")
    assert found.names == ("proofs", "maths", "code")
    assert set(found.changes) == kept("maths", "code") | {TaskChange("split", "maths", "proofs")}


def test_merged_tasks_have_the_name_of_the_larger() -> None:
    parts = known(prompts((SUMS, 50), (PROOFS, 70), (CODE, 60)), "sums", "proofs", "code")
    labels, points = prompts((SUMS, 50), (PROOFS, 70), (CODE, 60), seed=1)
    found = told(parts, (np.maximum(labels - 1, 0), points), "numbers", "python")
    assert found.names == ("proofs", "code")
    assert set(found.changes) == kept("proofs", "code") | {TaskChange("merged", "sums", "proofs")}


def test_a_task_without_prompts_has_vanished() -> None:
    found = told(THREE, prompts((CODE, 60), (MATHS, 50), seed=1), "python", "sums")
    assert found.names == ("code", "maths")
    assert set(found.changes) == kept("maths", "code") | {TaskChange("vanished", "chat", None)}


def test_embeddings_of_another_model_tell_nothing() -> None:
    labels, points = prompts((MATHS, 90), (CODE, 60))
    other = (labels, points[:, :8])  # nor need they have as many dimensions
    assert told(THREE, other, "maths", "new", embedder="another") == Recognised(("maths", "new"), ())
    assert compare(THREE, known(other, "maths", "new", embedder="another")) == ()


@pytest.mark.parametrize("seed", range(3))
def test_a_single_task_is_the_same_or_another(seed: int) -> None:
    one = known(prompts((MATHS, 60)), "maths")
    assert told(one, prompts((MATHS, 60), seed=seed), "sums") == Recognised(("maths",), tuple(kept("maths")))
    another = told(one, prompts((CODE, 60), seed=seed), "code")
    assert another.names == ("code",)
    assert set(another.changes) == {TaskChange("new", None, "code"), TaskChange("vanished", "maths", None)}


def test_without_prompts_the_centroids_tell_the_same() -> None:
    new = known(prompts((CHAT, 80), (SUMS, 60), (PROOFS, 50), seed=1), "talk", "sums", "proofs")
    assert set(compare(THREE, new)) == {
        TaskChange("kept", "chat", "talk"),
        TaskChange("kept", "maths", "sums"),
        TaskChange("split", "maths", "proofs"),
        TaskChange("vanished", "code", None),
    }
    assert {(change.what, change.before, change.after) for change in compare(new, THREE)} == {
        ("kept", "talk", "chat"),
        ("kept", "sums", "maths"),
        ("merged", "proofs", "maths"),
        ("new", None, "code"),
    }


def test_of_several_that_could_be_a_task_its_namesake_is() -> None:
    new = known(prompts((SUMS, 60), (PROOFS, 50), seed=1), "sums", "maths")
    assert TaskChange("kept", "maths", "maths") in compare(THREE, new)
    assert TaskChange("split", "maths", "sums") in compare(THREE, new)


def test_centroids_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    THREE.save(tmp_path)
    read = TaskCentroids.load(tmp_path)
    assert (read.centroids == THREE.centroids).all()
    assert replace(read, centroids=THREE.centroids) == THREE
    assert THREE.prompts == (90, 60, 30)


def test_what_holds_no_centroids_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        TaskCentroids.load(tmp_path)
