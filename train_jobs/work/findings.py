"""The format of findings.json: every figure of a retraining, for the report and for scripts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from core.atomic_files import replace
from core.bundle.manifest import MeasuredCosts
from core.confidence_intervals import Difference
from core.tasks.clustering import KScore
from core.tasks.identity import TaskChange


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A draft on the test prompts of a slot, one of `train_jobs.drafts.candidates`, trained with `seed`.

    `versus_general` is the gain in speedup, as a share, with the 95 % interval; None for `general` itself. In findings
    of earlier versions all speedups are 0, and the differences are in acceptance_rate.
    """

    name: str
    seed: int | None
    speedup: float = 0.0
    acceptance_rate: float
    tokens_per_pass: float
    versus_general: Difference | None


class Pooled(msgspec.Struct, frozen=True, kw_only=True):
    """All seeds of a kind of draft together; intervals are by prompt. Each seed is compared with its own base."""

    name: str
    speedup: float = 0.0
    acceptance_rate: float
    tokens_per_pass: float
    versus_general: Difference | None
    versus_base: Difference | None = None


class SlotFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The slot of a task, its candidates, and the promotion of one of them; `all` stands for the general slot.

    `label` is the commonest label of the task's prompts, if they came with labels; `prompts` counts them by split. A
    task without test prompts has no candidates and nothing pooled.
    """

    task: str
    label: str | None
    prompts: dict[str, int]
    candidates: list[Candidate]
    pooled: list[Pooled]
    decision: str
    reason: str


class ClassifierFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A router: share of correct predictions on test prompts and on reworded ones, and times of one prompt."""

    name: str
    agreement: float
    reworded: float
    p50_ms: float
    p99_ms: float


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """The router on test prompts: `confusion[i][j]` prompts of class i went to class j; `general` is the last class."""

    classes: list[str]
    confusion: list[list[int]]
    classifiers: list[ClassifierFigures]


class PublishedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The published drafts on all test prompts of one temperature, each prompt routed by the partition."""

    temperature: float
    speedup: float = 0.0
    acceptance_rate: float
    tokens_per_pass: float
    general_speedup: float = 0.0
    general_acceptance_rate: float
    general_tokens_per_pass: float


class RunTime(msgspec.Struct, frozen=True):
    """Start and end of a training run, in seconds since the epoch, and its held-out acceptance by step."""

    name: str
    began: float
    ended: float
    steps: list[int]
    acceptance: list[float]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All findings. `purity` compares the partition with the labels of held-out prompts, if there are labels.

    `changes` tells what became of the tasks of the bundle that was live; it is empty if they could not be compared.
    `costs` are what speedups were computed with; findings of earlier versions have none.
    """

    target: str
    draft: str
    num_speculative_tokens: int
    seeds: list[int]
    k: int
    purity: float | None
    slots: list[SlotFindings]
    served: list[PublishedFigures]
    routing: Routing | None
    ks: list[KScore]
    runs: list[RunTime]
    seconds: dict[str, float]
    changes: list[TaskChange] = []
    costs: MeasuredCosts | None = None

    def save(self, file: Path) -> None:
        replace(file, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")

    @classmethod
    def load(cls, file: Path) -> Findings:
        return msgspec.json.decode(file.read_bytes(), type=cls)
