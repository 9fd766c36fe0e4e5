"""The configuration of a retraining: one YAML file with a section per stage. Unknown keys are errors.

LoRA rank, learning rate, seeds and step counts are in `align`; the shipped files are in `train_jobs/configs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from core.distill.losses import LOSSES, described
from core.errors import ConfigError
from core.settings import Section, read_settings
from core.target import TargetModel
from core.tasks.embedding import MULTILINGUAL


class StageSection(Section):
    """A section; a key that earlier versions had is refused with what to write instead."""

    REMOVED: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _no_removed_key(cls, content: Any) -> Any:
        for key, instead in cls.REMOVED.items():
            if isinstance(content, dict) and key in content:
                raise ValueError(f"{key} is no setting any more: {instead}")
        return content


class TargetConfig(TargetModel):
    """The target: the model that answers the prompts and that the drafts imitate."""

    max_sessions: int = Field(32, ge=1, description="answers generated in one batch")


class WorkerConfig(Section):
    """The resources of one worker of a stage."""

    num_cpus: int = Field(1, ge=1, description="also its number of torch threads")
    num_gpus: float = Field(0.0, ge=0)
    at_once: int | None = Field(None, ge=1, description="most such workers at a time; as many as fit if absent")


class CollectConfig(StageSection):
    """The source of the prompts: either JSONL files or a directory of traces."""

    REMOVED: ClassVar[Mapping[str, str]] = {
        "family": "write files: [train_jobs/configs/prompts.jsonl], or files with prompts of your own",
        "family_tasks": "write files with prompts of these tasks alone",
        "held_out": "write held_out_share, a share of all prompts",
    }

    files: tuple[Path, ...] | None = Field(None, min_length=1, description="JSONL or JSON, of prompts or conversations")
    most: int | None = Field(
        None, ge=1, description="files: the first so many prompts of each; traces: the last so many answers"
    )
    traces: Path | None = Field(None, description="trace directory of a service or of `taskspec traces import`")
    effect: float = Field(
        0.02, gt=0, lt=1, description="least gain in tokens a second, a share, that a task should be able to show"
    )
    held_out_share: float | None = Field(
        None, gt=0, lt=1, description="share of held-out prompts; follows from `effect` if absent"
    )
    temperatures: tuple[float, ...] = Field((0.0, 1.0), min_length=1, description="of new answers, in turn")
    every_temperature: bool = Field(
        False, description="answer each prompt that is learned from at all temperatures: for few prompts"
    )
    max_tokens: int = Field(400, ge=1, description="length limit of a new answer")
    top: int = Field(64, ge=1, description="log-probabilities of the target kept per token")
    shard: int = Field(256, ge=1, description="prompts per shard; an interrupted stage resumes at a shard")
    seed: int = 0
    worker: WorkerConfig = WorkerConfig()

    @model_validator(mode="after")
    def _one_source(self) -> CollectConfig:
        if (self.files is None) == (self.traces is None):
            raise ValueError("write exactly one of `files` and `traces`")
        return self


class MakeConfig(Section):
    """The draft that `taskspec draft make` makes from the target; what is not given is chosen by short trials."""

    layers: int | None = Field(
        None, ge=1, description="of the target, the first and the last among them; of a narrow one"
    )
    width: int | None = Field(None, ge=64, description="of a narrow draft, a multiple of 64; absent: the target's")
    vocabulary: int | None = Field(None, ge=2, description="token ids that its head has")
    steps: int = Field(2000, ge=1, description="of its training")
    trial_steps: int = Field(150, ge=1, description="of the training of each trial")


class PartitionConfig(Section):
    """The search for tasks."""

    embedder: str = Field(MULTILINGUAL, description="sentence-transformers model: hub id, directory or package")
    k: int | None = Field(None, ge=1, description="number of tasks; found from the data if absent")
    max_k: int = Field(10, ge=2)
    worker: WorkerConfig = WorkerConfig()


class AlignConfig(Section):
    """The training of drafts: the base on all tasks, then from it one adapter per task, and the controls.

    Base and controls learn from all tasks, the controls in as many steps as all adapters together.
    """

    seeds: tuple[int, ...] = Field((0,), min_length=1, description="the first may be published; others show the spread")
    ranks: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (32,), min_length=1, description="LoRA ranks that every task chooses from"
    )
    loss: str = Field("lk", description=described())
    learning_rate: float = Field(0.02, gt=0)
    base_steps: int | None = Field(
        None,
        ge=0,
        description="of the base; as many as all adapters together if absent; 0: the draft is the base, as after "
        "`taskspec draft make`",
    )
    steps: int = Field(600, ge=1, description="per task, at most: the best on the stop set is kept")
    budget: int = Field(2048, ge=1, description="padded tokens per step")
    evaluate_every: int = Field(
        50, ge=1, description="steps of an adapter between evaluations, each with a checkpoint; longer runs do as many"
    )
    products: Literal["float32", "bfloat16"] = Field(
        "float32", description="dtype of matrix products: bfloat16 is quicker on GPUs and on CPUs that have it"
    )
    max_pairs: int = Field(8192, ge=1, description="most answers that a task's adapter learns from")
    device: str = "cpu"
    worker: WorkerConfig = WorkerConfig()

    @field_validator("loss")
    @classmethod
    def _is_a_loss(cls, loss: str) -> str:
        if loss not in LOSSES:
            raise ValueError(f"there is no loss {loss!r}; write {' or '.join(LOSSES)}")
        return loss


class RouterConfig(StageSection):
    """The training of the task classifier."""

    REMOVED: ClassVar[Mapping[str, str]] = {
        "general_prompts": "the router learns from all prompts of the file that `general` names",
        "baselines": "leave it out; the router is no longer compared with other classifiers",
    }

    general: Path | None = Field(None, description="JSONL file of prompts of no task, which the router sends nowhere")
    steps: int = Field(300, ge=1)
    batch: int = Field(64, ge=1)
    longest: int = Field(64, ge=2, description="token ids read per prompt during training")
    worker: WorkerConfig = WorkerConfig()

    @field_validator("general")
    @classmethod
    def _is_a_file(cls, general: Path | None) -> Path | None:
        if general == Path("family:general"):
            raise ValueError("write a JSONL file of prompts of no task, or leave it out")
        return general


class EvaluateConfig(Section):
    """The comparison of drafts on held-out prompts."""

    worker: WorkerConfig = WorkerConfig()


class PublishConfig(Section):
    """What becomes of a new bundle."""

    live: bool = Field(
        True, description="services that follow take it up; false: it waits for `taskspec bundles shadow` and `deploy`"
    )


class WatchConfig(Section):
    """`taskspec retrain --watch`: when it looks at the traces of `collect.traces`, and when it retrains."""

    every_s: float = Field(600.0, gt=0, description="seconds between two looks")
    threshold: float = Field(0.25, gt=0, description="population stability index above which traffic has drifted")
    fall: float = Field(0.05, ge=0, lt=1, description="drift, too: a task's acceptance fell by more, with 95 %")
    at_least_every_h: float | None = Field(None, gt=0, description="retrain after so many hours, drift or not")
    reference: int = Field(500, ge=1, description="first answers under the live bundle, which later ones are held to")
    recent: int = Field(500, ge=1, description="last answers, which are compared with them")
    min_answers: int = Field(200, ge=30, description="on each side; with fewer no drift is claimed")
    keep: int = Field(3, ge=1, description="work directories of retrainings kept, the last ones")
    max_cpus: int | None = Field(None, ge=1, description="CPUs that all workers of a stage may take; all if absent")

    @model_validator(mode="after")
    def _enough_answers(self) -> WatchConfig:
        for name in ("reference", "recent"):
            if getattr(self, name) < self.min_answers:
                raise ValueError(f"{name} is less than min_answers, {self.min_answers}: write that or more")
        return self


class RetrainConfig(StageSection):
    """One retraining, from prompts to a live bundle; `watch` says when there is to be another."""

    REMOVED: ClassVar[Mapping[str, str]] = {"studies": "leave it out; a retraining has no stage `study`"}

    target: TargetConfig
    draft: str = Field(description="directory, hub id, or family:draft")
    work: Path = Field(
        description="work directory; an interrupted retraining resumes from it; on a tmpfs for traces kept in memory"
    )
    bundles: Path = Field(description="bundle directory that services load from")
    collect: CollectConfig
    make: MakeConfig = MakeConfig()
    partition: PartitionConfig = PartitionConfig()
    align: AlignConfig = AlignConfig()
    router: RouterConfig = RouterConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    publish: PublishConfig = PublishConfig()
    watch: WatchConfig = WatchConfig()

    @model_validator(mode="after")
    def _within_max_cpus(self) -> RetrainConfig:
        limit = self.watch.max_cpus
        for section, worker in self.workers().items():
            if limit is not None and worker.num_cpus > limit:
                raise ValueError(
                    f"{section}.worker.num_cpus is {worker.num_cpus} and watch.max_cpus {limit}: write "
                    f"{section}: {{worker: {{num_cpus: {limit}}}}} or less, or watch: {{max_cpus: {worker.num_cpus}}}"
                )
        return self

    def watched(self) -> Path:
        """The traces that `--watch` looks at. Raises `ConfigError` if a retraining learns from others."""
        if self.collect.traces is None:
            raise ConfigError(
                "--watch looks at what a service recorded: write `collect: {traces: DIR}`, with the directory that the "
                "service's YAML has as `traces: {directory: DIR}`, in place of `files`"
            )
        return self.collect.traces

    def workers(self) -> dict[str, WorkerConfig]:
        """The worker of every stage that has some, by its section."""
        return {name: section.worker for name, section in self if hasattr(section, "worker")}

    def within(self, cpus: int) -> RetrainConfig:
        """The same configuration, with no more workers at once than take so many CPUs."""

        def limited(worker: WorkerConfig) -> WorkerConfig:
            limit = max(1, cpus // worker.num_cpus)
            return worker.model_copy(update={"at_once": min(limit, worker.at_once or limit)})

        changed = {
            section: getattr(self, section).model_copy(update={"worker": limited(worker)})
            for section, worker in self.workers().items()
        }
        return self.model_copy(update=changed)

    def anchored(self) -> RetrainConfig:
        """The same configuration with absolute paths: workers and jobs have other working directories."""
        collect = self.collect
        inside = {
            "files": collect.files and tuple(file.absolute() for file in collect.files),
            "traces": collect.traces and collect.traces.absolute(),
        }
        return self.model_copy(
            update={
                "work": self.work.absolute(),  # resolve() would follow links, and another node may have only the link
                "bundles": self.bundles.absolute(),
                "draft": _place(self.draft),
                "target": self.target.model_copy(update={"model": _place(self.target.model)}),
                "partition": self.partition.model_copy(update={"embedder": _place(self.partition.embedder)}),
                "router": self.router.model_copy(
                    update={"general": self.router.general and self.router.general.absolute()}
                ),
                "collect": collect.model_copy(update=inside),
            }
        )


def _place(name: str) -> str:
    """An existing path made absolute; a hub id, package or `family:` name unchanged."""
    return str(Path(name).absolute()) if Path(name).exists() else name


def load_config(file: Path) -> RetrainConfig:
    """Read a YAML file. `ConfigError` names the key at fault and what to write instead."""
    return read_settings(file, RetrainConfig)
