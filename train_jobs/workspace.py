"""The work directory of a retraining: each stage's directory, the inputs it depends on, and the results in it.

Stages read earlier results through `Workspace`; only this file knows where they lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.settings import Section
from core.tasks.embedding import Matrix
from core.tasks.identity import TaskCentroids, TaskChange
from core.traces.store import Trace
from train_jobs.artefacts import (
    CHANGES,
    LIVE,
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
from train_jobs.cached_step import CachedStep, fingerprint
from train_jobs.config import RetrainConfig
from train_jobs.findings import Routing
from train_jobs.models import context, model_directory
from train_jobs.stages import STAGES, StageName


class Workspace:
    """Typed access to the results of all stages. Models and prompts are fingerprinted once, when it is made.

    It can be sent to the workers of a cluster; directories are read there, at each call.
    """

    def __init__(self, config: RetrainConfig) -> None:
        self.config = config
        self.steps = _steps(config)

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

    def live(self) -> LiveDrafts:
        """The drafts in service when the align stage began."""
        return read_json(self._directory("align") / LIVE, LiveDrafts)

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

    def winners(self) -> Winners:
        return read_json(self._directory("evaluate") / WINNERS, Winners)

    def version(self) -> str:
        """The bundle that was published."""
        return (self._directory("publish") / "version").read_text()

    def unfinished(self, before: StageName) -> list[StageName]:
        """Stages before this one that are not done for the present configuration."""
        return [name for name in STAGES[: STAGES.index(before)] if not self.steps[name].done]

    def _directory(self, stage: StageName) -> Path:
        return self.steps[stage].directory


def _steps(config: RetrainConfig) -> dict[StageName, CachedStep]:
    """Every stage with its inputs. A stage whose inputs change is run again, and so is all that depends on it."""
    work = config.work
    target = config.target.model_dump(mode="json", exclude={"max_sessions"})
    weights = fingerprint(model_directory(config.target.model))
    prompts = [_file_or_nothing(source) for source in [*(config.collect.files or ()), config.collect.traces]]
    seen = context(config.draft)  # a draft learns from no more of an answer
    collect = CachedStep(work / "collect", _inputs(config.collect), target, seen, weights, prompts)
    partition = CachedStep(work / "partition", _inputs(config.partition), collect.key)
    draft = fingerprint(model_directory(config.draft))
    align = CachedStep(work / "align", _inputs(config.align), draft, partition.key)
    general = _file_or_nothing(config.router.general)
    router = CachedStep(work / "router", _inputs(config.router), general, partition.key)
    evaluate = CachedStep(work / "evaluate", _inputs(config.evaluate), align.key)
    publish = CachedStep(work / "publish", str(config.bundles), _inputs(config.publish), evaluate.key, router.key)
    report = CachedStep(work / "report", publish.key)
    return dict(zip(STAGES, (collect, partition, align, router, evaluate, publish, report), strict=True))


def _inputs(section: Section) -> dict[str, Any]:
    return section.model_dump(mode="json", exclude={"worker"})


def _file_or_nothing(path: Path | None) -> list[tuple[str, int, int]]:
    return fingerprint(path) if path and path.exists() else []
