"""The work directory of a retraining: a directory for each stage, with its results.

Stages read earlier results through `Workspace`; only this file knows where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.bundle.manifest import MeasuredCosts
from core.tasks.embedding import Matrix
from core.tasks.identity import TaskCentroids, TaskChange
from core.traces.store import Trace
from train_jobs.config import RetrainConfig
from train_jobs.work.artefacts import (
    CHANGES,
    COSTS,
    LIVE_DRAFTS,
    ROUTING,
    WINNERS,
    Collected,
    FittedDrafts,
    LiveDrafts,
    Scores,
    Split,
    TaskAssignment,
    Winners,
    load_embeddings,
    read_json,
)
from train_jobs.work.cached_step import CachedStep
from train_jobs.work.findings import Routing
from train_jobs.work.models import model_directory


class Workspace:
    """Typed access to the results of all stages (`train_jobs.stages.open_workspace` makes it).

    It can be sent to the workers of a cluster; directories are read there, at each call.
    """

    def __init__(self, config: RetrainConfig, steps: Mapping[str, CachedStep]) -> None:
        self.config = config
        self.steps = steps  # by stage, in the order in which the stages run

    def collected(self) -> Collected:
        return Collected(self._directory("collect"))

    def traces(self, split: Split) -> list[Trace]:
        return self.collected().traces(split)

    def tasks(self) -> TaskAssignment:
        return TaskAssignment(self._directory("partition"))

    def embeddings(self) -> dict[Split, Matrix]:
        return load_embeddings(self._directory("partition"))

    def centroids(self) -> TaskCentroids:
        """What later retrainings recognise the tasks by."""
        partition = self.tasks().partition
        embedder, embeddings = self.config.partition.embedder, self.embeddings()["train"]
        return TaskCentroids.of(embedder, partition.names, partition.labels, embeddings)

    def task_changes(self) -> list[TaskChange]:
        """What became of the tasks of the bundle that was live when the partition was made."""
        file = self._directory("partition") / CHANGES
        return read_json(file, list[TaskChange]) if file.exists() else []  # partitions of earlier versions have none

    def words(self) -> dict[str, tuple[str, ...]]:
        """The words that distinguish the prompts of each task, if they may be published."""
        partition = self.tasks().partition
        return dict(zip(partition.names, partition.telling, strict=False))  # or none at all

    def live(self) -> LiveDrafts:
        """The drafts in service when the align stage began."""
        return read_json(self._directory("align") / LIVE_DRAFTS, LiveDrafts)

    def drafts(self) -> FittedDrafts:
        return FittedDrafts(self._directory("align"))

    def base(self, seed: int) -> Path:
        """The model that adapters of a seed are for: a fitted base, or the draft, if no base is trained."""
        fitted = self.config.align.base_steps != 0
        return self.drafts().base(seed) if fitted else model_directory(self.config.draft)

    def router(self) -> Path:
        """Directory of the task classifier."""
        return self._directory("router") / "router"

    def routing(self) -> Routing | None:
        """Quality of the router; None if all prompts are one task."""
        file = self._directory("router") / ROUTING
        return read_json(file, Routing) if file.exists() else None

    def scores(self) -> Scores:
        return Scores(self._directory("evaluate"))

    def costs(self) -> MeasuredCosts:
        """What the times in `scores` were computed with."""
        return read_json(self._directory("evaluate") / COSTS, MeasuredCosts)

    def winners(self) -> Winners:
        return read_json(self._directory("evaluate") / WINNERS, Winners)

    def version(self) -> str:
        """The bundle that was published."""
        return (self._directory("publish") / "version").read_text()

    def unfinished(self, before: str) -> list[str]:
        """Stages before this one that are not done for the present configuration."""
        names = list(self.steps)
        return [name for name in names[: names.index(before)] if not self.steps[name].done]

    def _directory(self, stage: str) -> Path:
        return self.steps[stage].directory
