"""The search for tasks in prompts without labels: k-means, with the number of tasks k from the data.

A value of k is accepted if two halves of the prompts, clustered separately, agree on the cluster of every prompt, and
if the silhouette beats that of column-permuted embeddings. The largest accepted k is the number of tasks. The
silhouette alone is not enough: on the family it keeps rising beyond the tasks, towards the templates inside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from core.errors import ConfigError
from core.tasks.embedding import Matrix, PromptSpace, principal_axes, project
from core.tasks.names import task_names, task_words

MIN_PROMPTS = 50
MAX_TASKS = 10
TELLING_WORDS = 6  # of a task, at most
REAPPEARS = 0.88  # adjusted Rand index; on subsets of the family .82 to .88 give nearly the same k
_HALVINGS = 8
_STARTS = 10
_SILHOUETTE_SAMPLE = 1000
_CONFIG, _ARRAYS = "partition.json", "partition.safetensors"
_SPACE_ARRAYS = ("idf", "lexicon", "mean", "axes")

Labels = NDArray[np.int64]


class KScore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scores of k tasks: silhouette, that of column-permuted embeddings, agreement of halves (adjusted Rand index)."""

    k: int
    silhouette: float
    permuted_silhouette: float
    reappearance: float

    @property
    def real(self) -> bool:
        """True if the prompts have this many tasks, and not only the method."""
        return self.reappearance >= REAPPEARS and self.silhouette > self.permuted_silhouette


class PartitionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    scores: tuple[KScore, ...]
    words: tuple[str, ...]
    telling: tuple[tuple[str, ...], ...] = ()  # partitions of earlier versions lack them


@dataclass(frozen=True, slots=True)
class TaskPartition:
    """The tasks, largest first: `labels` [n] of the prompts they were found in, `centroids` [k, dimensions].

    `telling` are the words that tell the prompts of each from others, the most telling first; or none at all. `assign`
    gives the task of any later prompt.
    """

    names: tuple[str, ...]
    telling: tuple[tuple[str, ...], ...]
    labels: Labels
    centroids: Matrix
    scores: tuple[KScore, ...]
    space: PromptSpace

    @property
    def k(self) -> int:
        """The number of tasks."""
        return len(self.names)

    def assign(self, prompts: Sequence[str], embeddings: Matrix) -> Labels:
        """Label [n] of the nearest centroid for each prompt."""
        return _nearest(self.space.place(prompts, embeddings), self.centroids)

    def save(self, directory: Path) -> None:
        """Write partition.json and partition.safetensors."""
        directory.mkdir(parents=True, exist_ok=True)
        arrays = {name: getattr(self.space, name) for name in _SPACE_ARRAYS}
        save_file({"labels": self.labels, "centroids": self.centroids, **arrays}, directory / _ARRAYS)
        config = msgspec.json.encode(PartitionConfig(self.names, self.scores, self.space.words, self.telling))
        (directory / _CONFIG).write_bytes(msgspec.json.format(config) + b"\n")

    @classmethod
    def load(cls, directory: Path) -> TaskPartition:
        """Read what `save` wrote. `ConfigError` names a directory where that is missing or broken."""
        try:
            config = msgspec.json.decode((directory / _CONFIG).read_bytes(), type=PartitionConfig)
            arrays = load_file(directory / _ARRAYS)
            space = PromptSpace(config.words, *(arrays[name] for name in _SPACE_ARRAYS))
            rest = arrays["labels"], arrays["centroids"], config.scores, space
            return cls(config.names, config.telling, *rest)
        except (OSError, msgspec.DecodeError, SafetensorError, KeyError) as error:
            raise ConfigError(f"{directory} does not hold a task partition: {error}") from error


def find_tasks(
    prompts: Sequence[str], embeddings: Matrix, *, k: int | None = None, max_k: int = MAX_TASKS, seed: int = 0
) -> TaskPartition:
    """Partition prompts by their embeddings [n, d] into `k` tasks, or into the number found, at most `max_k`.

    The same input and seed give the same partition. Raises ValueError for fewer than `MIN_PROMPTS` prompts.
    """
    if len(prompts) < MIN_PROMPTS:
        raise ValueError(f"{len(prompts)} prompts are too few to find tasks in: at least {MIN_PROMPTS} are needed")
    space = PromptSpace.fit(prompts, embeddings, seed)
    joined = space.join(prompts, embeddings)
    points, permuted = project(joined, space.mean, space.axes), _permuted(joined, seed)
    scores = tuple(_score(points, permuted, count, seed) for count in range(2, max_k + 1))
    chosen = k or max((score.k for score in scores if score.real), default=1)
    labels, centroids = _largest_first(*_k_means(points, chosen, _STARTS, seed))
    words = task_words(prompts, labels.tolist(), chosen)
    telling = tuple(tuple(of_task[:TELLING_WORDS]) for of_task in words)
    return TaskPartition(task_names(words), telling, labels, centroids, scores, space)


def _score(points: Matrix, permuted: Matrix, k: int, seed: int) -> KScore:
    return KScore(k, _silhouette(points, k, seed), _silhouette(permuted, k, seed), _reappearance(points, k, seed))


def _silhouette(points: Matrix, k: int, seed: int) -> float:
    from sklearn.metrics import silhouette_score

    labels, _ = _k_means(points, k, _STARTS, seed)
    sample = min(_SILHOUETTE_SAMPLE, len(points))
    return float(silhouette_score(points, labels, sample_size=sample, random_state=seed))


def _reappearance(points: Matrix, k: int, seed: int) -> float:
    """Mean adjusted Rand index between two partitions of all points: by centroids of one half, and of the other."""
    from sklearn.metrics import adjusted_rand_score

    agreements = []
    for halving in range(_HALVINGS):
        order = np.random.default_rng((seed, halving)).permutation(len(points))
        halves = np.array_split(order, 2)
        labels = [_nearest(points, _k_means(points[half], k, _STARTS, seed)[1]) for half in halves]
        agreements.append(float(adjusted_rand_score(*labels)))
    return float(np.mean(agreements))


def _permuted(joined: Matrix, seed: int) -> Matrix:
    """Points with every column permuted on its own: the same values, without clusters."""
    permuted = np.random.default_rng(seed).permuted(joined, axis=0)
    return project(permuted, *principal_axes(permuted, seed))


def _k_means(points: Matrix, k: int, starts: int, seed: int) -> tuple[Labels, Matrix]:
    from sklearn.cluster import KMeans

    k_means = KMeans(k, n_init=starts, random_state=seed).fit(points)
    return k_means.labels_.astype(np.int64), k_means.cluster_centers_.astype(np.float32)


def _nearest(points: Matrix, centroids: Matrix) -> Labels:
    """argmin |x - c|^2, without the term |x|^2 that all centroids share."""
    distances = (centroids**2).sum(1) - 2 * points @ centroids.T
    nearest: Labels = distances.argmin(1).astype(np.int64)
    return nearest


def _largest_first(labels: Labels, centroids: Matrix) -> tuple[Labels, Matrix]:
    order = np.argsort(-np.bincount(labels, minlength=len(centroids)), kind="stable")
    return np.argsort(order)[labels], centroids[order]
