"""What a retraining found: the figures behind every decision, for the report and for scripts.

Enters: nothing; stages fill it in. Leaves: findings.json.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from core.bootstrap import Difference
from core.durable import replace


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A draft on the test prompts of a task: `general`, `mixed`, `full`, `task` or `live`, trained with `seed`.

    `versus_general` is its difference in acceptance_rate, with the 95 % interval; None for general itself.
    """

    name: str
    seed: int | None
    acceptance_rate: float
    tokens_per_pass: float
    versus_general: Difference | None


class Pooled(msgspec.Struct, frozen=True, kw_only=True):
    """All seeds of a kind of draft taken together: means, and the interval by prompts."""

    name: str
    acceptance_rate: float
    tokens_per_pass: float
    versus_general: Difference | None


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A task (or `all`, of which the general slot is decided), its candidates and what the gate made of them.

    `label` is what most of its prompts were called by whoever brought them, if anyone; `prompts` counts by part.
    """

    task: str
    label: str | None
    prompts: dict[str, int]
    candidates: list[Candidate]
    pooled: list[Pooled]
    decision: str
    reason: str


class PairsPoint(msgspec.Struct, frozen=True):
    """Held-out acceptance after learning from so many answers, ended at its best and at its end."""

    pairs: int
    stopped: float
    unstopped: float


class KPoint(msgspec.Struct, frozen=True):
    """How well k tasks fit, and test acceptance of k adapters of one total budget where that was tried."""

    k: int
    silhouette: float | None
    permuted_silhouette: float | None
    reappearance: float | None
    acceptance: float | None


class Classifier(msgspec.Struct, frozen=True, kw_only=True):
    """A way of telling tasks: share right on held-out and on reworded prompts, milliseconds a prompt."""

    name: str
    agreement: float
    reworded: float
    p50_ms: float
    p99_ms: float


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """The router on test prompts: `confusion[i][j]` prompts of class i went to j, classes in order, `general` last."""

    classes: list[str]
    confusion: list[list[int]]
    classifiers: list[Classifier]


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What the published drafts do on all test prompts, routed by the partition: by temperature."""

    temperature: float
    acceptance_rate: float
    tokens_per_pass: float
    general_acceptance_rate: float
    general_tokens_per_pass: float


class RunTime(msgspec.Struct, frozen=True):
    """When a training run was begun and ended, in seconds of the clock, and how its held-out acceptance went."""

    name: str
    began: float
    ended: float
    steps: list[int]
    acceptance: list[float]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything. `purity` is of the partition against the labels of held-out prompts, if there are labels."""

    target: str
    draft: str
    num_speculative_tokens: int
    seeds: list[int]
    k: int
    purity: float | None
    slots: list[Slot]
    served: list[Served]
    routing: Routing | None
    pairs: list[PairsPoint]
    ks: list[KPoint]
    runs: list[RunTime]
    seconds: dict[str, float]

    def save(self, file: Path) -> None:
        replace(file, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")

    @classmethod
    def load(cls, file: Path) -> Findings:
        return msgspec.json.decode(file.read_bytes(), type=cls)
