"""The stages of a retraining, one file each.

To add a stage, write a file here and its line in `SUMMARIES`, in whose order the stages run. The file has

    NEEDS = ("align",)                     the stages whose results it reads
    def inputs(config) -> list[object]     what else its result depends on
    def run(work, progress) -> None        writes the result into the directory `work.steps[NAME].start()`

A stage is run again when its inputs change or a stage that it needs was run again. Its settings, if it has some, are a
section of `train_jobs.config`, with a `worker` where it has workers. A format that other stages read is in
`train_jobs.work.artefacts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from train_jobs.cluster.progress import Progress
    from train_jobs.config import RetrainConfig
    from train_jobs.work.cached_step import CachedStep
    from train_jobs.work.workspace import Workspace

SUMMARIES = {
    "collect": "gather the prompts; the target answers them",
    "partition": "find the tasks, and a name for each",
    "align": "fit the draft to all prompts (the base), then train an adapter for each task, and the controls",
    "router": "train the classifier that predicts a prompt's task",
    "evaluate": "compare all drafts on held-out prompts, and choose one for each slot",
    "publish": "make the chosen drafts the live bundle",
    "report": "write one HTML page with plots, and the same figures as JSON",
}
STAGES = tuple(SUMMARIES)


class Stage(Protocol):
    """What the file of a stage has."""

    NEEDS: Sequence[str]

    def inputs(self, config: RetrainConfig) -> list[object]: ...

    def run(self, work: Workspace, progress: Progress) -> None: ...


def stage(name: str) -> Stage:
    """Loaded when it is asked for: a command's help needs none of PyTorch, Ray and scikit-learn."""
    return cast("Stage", import_module(f"{__name__}.{name}"))


def open_workspace(config: RetrainConfig) -> Workspace:
    """The work directory of a configuration. Models and prompts are fingerprinted once, here."""
    from train_jobs.work.cached_step import CachedStep
    from train_jobs.work.workspace import Workspace

    steps: dict[str, CachedStep] = {}
    for name in STAGES:
        keys = (steps[needed].key for needed in stage(name).NEEDS)
        steps[name] = CachedStep(config.work / name, *stage(name).inputs(config), *keys)
    return Workspace(config, steps)
