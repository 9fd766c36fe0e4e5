"""The identity of tasks: which tasks of a new partition are those of an earlier one, and what became of the others.

A published bundle keeps the centroids of its tasks. They are means of sentence embeddings, because the space that a
partition is found in (`PromptSpace`) is fitted to its prompts, and no other partition has the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from core.errors import ConfigError
from core.tasks.clustering import Labels
from core.tasks.embedding import Matrix, unit

# Least cosine of the centroids of one task. Halves of the family's prompts and of five public sets, each partitioned
# alone, gave .84 to .99 for tasks found in both, and at most .77 for two tasks (maths and Python). A loose task of few
# prompts can fall below: of 70 chat prompts, to .72. It then starts anew, which costs less than to go on from another
# task's adapter and evidence.
NEAR = 0.8
_MAJORITY = 0.5  # more than this share of a task's prompts can lie in one other task only
_CONFIG, _ARRAYS = "centroids.json", "centroids.safetensors"


class CentroidsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    embedder: str
    names: tuple[str, ...]
    prompts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskCentroids:
    """What tasks are recognised by: names, numbers of prompts, and mean embeddings [k, d] by the model `embedder`."""

    embedder: str
    names: tuple[str, ...]
    prompts: tuple[int, ...]
    centroids: Matrix

    @classmethod
    def of(cls, embedder: str, names: tuple[str, ...], labels: Labels, embeddings: Matrix) -> TaskCentroids:
        """Those of a partition with these `labels` [n] of prompts with these `embeddings` [n, d]."""
        centroids = np.stack([embeddings[labels == task].mean(0) for task in range(len(names))])
        return cls(embedder, names, tuple(np.bincount(labels, minlength=len(names)).tolist()), centroids)

    def cosines(self, points: Matrix) -> Matrix:
        """Cosine [n, k] of every point [n, d] with every centroid."""
        return unit(points) @ unit(self.centroids).T

    def save(self, directory: Path) -> None:
        """Write centroids.json and centroids.safetensors."""
        directory.mkdir(parents=True, exist_ok=True)
        save_file({"centroids": self.centroids}, directory / _ARRAYS)
        config = msgspec.json.encode(CentroidsConfig(self.embedder, self.names, self.prompts))
        (directory / _CONFIG).write_bytes(msgspec.json.format(config) + b"\n")

    @classmethod
    def load(cls, directory: Path) -> TaskCentroids:
        """Read what `save` wrote. `ConfigError` names a directory where that is missing or broken."""
        try:
            config = msgspec.json.decode((directory / _CONFIG).read_bytes(), type=CentroidsConfig)
            centroids = load_file(directory / _ARRAYS)["centroids"]
            return cls(config.embedder, config.names, config.prompts, centroids)
        except (OSError, msgspec.DecodeError, SafetensorError, KeyError) as error:
            raise ConfigError(f"{directory} does not hold the centroids of tasks: {error}") from error


class TaskChange(msgspec.Struct, frozen=True):
    """What became of a task, with its name before and after; None where there was or is no such task.

    `split` is a task out of one that is kept elsewhere, `merged` a task that went into one that is kept.
    """

    what: Literal["kept", "split", "new", "merged", "vanished"]
    before: str | None
    after: str | None


class Recognised(NamedTuple):
    """The names of a partition's tasks, in its order, and what changed; no changes if nothing could be compared."""

    names: tuple[str, ...]
    changes: tuple[TaskChange, ...]


def recognise(old: TaskCentroids, new: TaskCentroids, labels: Labels, embeddings: Matrix) -> Recognised:
    """Give the tasks of a new partition the names that they had, and the others names that no task had.

    `labels` [n] and `embeddings` [n, d] are those of the new partition's prompts. An old task and a new one can be the
    same if their centroids are near and one holds most of the other's prompts; a prompt is of the old task whose
    centroid is nearest. Of all ways to pair them, that is taken which leaves most prompts under their task's name.
    """
    if old.embedder != new.embedder:
        return Recognised(new.names, ())
    shared = np.zeros((len(new.names), len(old.names)))
    np.add.at(shared, (labels, old.cosines(embeddings).argmax(1)), 1)
    links = _links(shared, shared, old.cosines(new.centroids))
    earlier = _paired(links)
    names = tuple(
        old.names[earlier[task]] if task in earlier else _unused(name, old.names) for task, name in enumerate(new.names)
    )
    return Recognised(names, tuple(_changes(old.names, names, links, earlier)))


def compare(old: TaskCentroids, new: TaskCentroids) -> tuple[TaskChange, ...]:
    """What changed between two partitions whose prompts are not at hand, each with its own names.

    All prompts of a task count for the nearest task of the other side. Where several could be the same, the one of the
    same name is. No changes if the embedders differ.
    """
    if old.embedder != new.embedder:
        return ()
    cosines = old.cosines(new.centroids)
    forth = np.eye(len(old.names))[cosines.argmax(1)] * np.array(new.prompts)[:, None]
    back = np.eye(len(new.names))[cosines.argmax(0)].T * np.array(old.prompts)
    links = _links(forth, back, cosines)
    namesakes = np.array(new.names)[:, None] == np.array(old.names)
    return tuple(_changes(old.names, new.names, links, _paired(links * (1 + namesakes * links.sum()))))


def _links(of_new: NDArray[np.float64], of_old: NDArray[np.float64], cosines: Matrix) -> NDArray[np.float64]:
    """How much speaks for a new task being an old one [new, old]: shared prompts times cosine; 0 if it cannot be.

    `of_new` are the prompts of the new tasks by the old one that they lie in, `of_old` those of the old tasks likewise.
    """
    majority = (of_new > _MAJORITY * of_new.sum(1, keepdims=True)) | (of_old > _MAJORITY * of_old.sum(0))
    return np.where(majority & (cosines >= NEAR), (of_new + of_old) * cosines, 0.0)


def _paired(links: NDArray[np.float64]) -> dict[int, int]:
    """The old task that each new task is; new tasks that are none are left out."""
    from scipy.optimize import linear_sum_assignment

    pairs = np.transpose(linear_sum_assignment(links, maximize=True)).tolist()
    return {task: old for task, old in pairs if links[task, old] > 0}


def _changes(
    before: Sequence[str], after: Sequence[str], links: NDArray[np.float64], earlier: Mapping[int, int]
) -> Iterator[TaskChange]:
    """The new tasks in order, then the old ones that are not kept.

    A task that has links and is not kept leads to one that is: else the two would have been paired.
    """
    for task, name in enumerate(after):
        if task in earlier:
            yield TaskChange("kept", before[earlier[task]], name)
        elif links[task].any():
            yield TaskChange("split", before[int(links[task].argmax())], name)
        else:
            yield TaskChange("new", None, name)
    for task in sorted(set(range(len(before))) - set(earlier.values())):
        into = after[int(links[:, task].argmax())] if links[:, task].any() else None
        yield TaskChange("merged" if into else "vanished", before[task], into)


def _unused(name: str, used: Sequence[str]) -> str:
    """The name, with a number if it is used."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in used)
