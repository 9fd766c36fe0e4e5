"""What a retraining is made of: one YAML file, every key known.

Enters: a path. Leaves: a `RetrainConfig`, of which every stage reads its own section and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from core.embedding import MULTILINGUAL
from core.settings import Section, read_settings


class Target(Section):
    """The model that answers, and whose answers the drafts learn."""

    model: str = Field(description="directory, hub id, or family:target")
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    device: str = "cpu"
    max_sessions: int = Field(32, ge=1, description="answers in one pass")


class Worker(Section):
    """What one worker of a stage takes of its machine."""

    num_cpus: int = Field(1, ge=1, description="also its torch threads")
    num_gpus: float = Field(0.0, ge=0)


class Collect(Section):
    """Where prompts come from: the family's generators, a JSONL file or a directory of traces; exactly one."""

    family: int | None = Field(None, ge=1, description="prompts to learn from, of each of the family's tasks")
    family_tasks: tuple[str, ...] | None = Field(None, description="only these of the family's tasks")
    file: Path | None = Field(None, description="JSONL, each line a prompt or messages")
    traces: Path | None = Field(None, description="what a service kept, or `taskspec traces import` wrote")
    held_out: int = Field(180, ge=3, description="family: prompts kept apart, of each task")
    held_out_share: float = Field(0.3, gt=0, lt=1, description="file, traces: share of the prompts kept apart")
    temperatures: tuple[float, ...] = Field((0.0, 1.0), min_length=1, description="taken in turn, for new answers")
    max_tokens: int = Field(400, ge=1, description="longest new answer")
    top: int = Field(64, ge=1, description="of the target's log-probabilities at a token, the largest so many are kept")
    shard: int = Field(256, ge=1, description="prompts answered between two points to resume from")
    seed: int = 0
    worker: Worker = Worker()

    @model_validator(mode="after")
    def _one_source(self) -> Collect:
        if [self.family, self.file, self.traces].count(None) != 2:
            raise ValueError("write exactly one of `family`, `file` and `traces`")
        return self


class Partition(Section):
    """How tasks are found."""

    embedder: str = Field(MULTILINGUAL, description="sentence-transformers model: hub id, directory or package")
    k: int | None = Field(None, ge=1, description="number of tasks; none finds it")
    max_k: int = Field(10, ge=2)
    worker: Worker = Worker()


class Align(Section):
    """How drafts are fitted; one run per task and seed, and the controls beside them.

    `mixed` and the full fine-tune learn from all tasks with the steps of all tasks' adapters together.
    """

    seeds: tuple[int, ...] = Field((0,), min_length=1, description="the first is published, the others tell the spread")
    full_fine_tune: bool = True
    rank: int = Field(32, ge=1)
    learning_rate: float = Field(0.02, gt=0)
    steps: int = Field(600, ge=1, description="of an adapter of one task")
    budget: int = Field(2048, ge=1, description="padded tokens per step")
    evaluate_every: int = Field(50, ge=1, description="steps between looks at held-out acceptance, and checkpoints")
    patience: int = Field(6, ge=1, description="evaluations without a new best before the end")
    max_pairs: int = Field(8192, ge=1, description="answers a task's adapter learns from, at most")
    device: str = "cpu"
    worker: Worker = Worker()


class Router(Section):
    """How the task classifier is fitted."""

    general: str | None = Field("family:general", description="prompts of no task: JSONL file, or the family's")
    general_prompts: int = Field(1500, ge=2, description="family: how many of them")
    steps: int = Field(300, ge=1)
    batch: int = Field(64, ge=1)
    longest: int = Field(64, ge=2, description="ids read of a prompt while it learns")
    rivals: bool = Field(True, description="also fit a BERT-mini and a nearest centroid, for the report")
    worker: Worker = Worker()


class Evaluate(Section):
    """How drafts are compared on held-out prompts."""

    num_speculative_tokens: int = Field(6, ge=1, le=15)
    worker: Worker = Worker()


class Studies(Section):
    """Curves for the report that cost training of their own; empty lists leave them out."""

    pairs: tuple[int, ...] = Field((), description="acceptance against so many answers")
    pairs_task: str = Field("english", description="the family's task that these are of")
    ks: tuple[int, ...] = Field((), description="acceptance against so many tasks")
    steps: int = Field(300, ge=1, description="of every run of the first; of all runs of one k together")


class RetrainConfig(Section):
    """One retraining: from prompts to a live bundle."""

    target: Target
    draft: str = Field(description="directory, hub id, or family:draft")
    work: Path = Field(description="directory of everything between; a run that was cut off goes on from it")
    bundles: Path = Field(description="directory that services load from")
    collect: Collect
    partition: Partition = Partition()
    align: Align = Align()
    router: Router = Router()
    evaluate: Evaluate = Evaluate()
    studies: Studies = Studies()

    def anchored(self) -> RetrainConfig:
        """The same for a process with another working directory, as workers and jobs have: all paths absolute."""
        inside = {name: path.absolute() for name in ("file", "traces") if (path := getattr(self.collect, name))}
        return self.model_copy(
            update={
                "work": self.work.absolute(),  # resolve() would follow links, and another node may have only the link
                "bundles": self.bundles.absolute(),
                "draft": _place(self.draft),
                "target": self.target.model_copy(update={"model": _place(self.target.model)}),
                "partition": self.partition.model_copy(update={"embedder": _place(self.partition.embedder)}),
                "router": self.router.model_copy(
                    update={"general": self.router.general and _place(self.router.general)}
                ),
                "collect": self.collect.model_copy(update=inside),
            }
        )


def _place(name: str | None) -> str | None:
    """A hub id, a package or one of the family's stays what it is; a path that is here becomes absolute."""
    return str(Path(name).absolute()) if name and Path(name).exists() else name


def load_config(file: Path) -> RetrainConfig:
    """Read a YAML file; `ConfigError` names the key at fault and what to write instead."""
    return read_settings(file, RetrainConfig)
