"""Invented findings with plausible figures of every kind, for tests of the report."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from core.bundle.manifest import MeasuredCosts
from core.confidence_intervals import Difference
from core.tasks.clustering import KScore
from train_jobs.work.findings import (
    Candidate,
    ClassifierFigures,
    Findings,
    Pooled,
    PublishedFigures,
    Routing,
    RunTime,
    SlotFindings,
)

TASKS = {
    "sum-remainder": "math",
    "protons-moles": "chemistry",
    "verb-<script>alert(1)</script>": "english",
    "成语-造句": "chinese",
    "knights-knaves": "logic",
    "list-$def$": None,
}
COSTS = MeasuredCosts(passes=(0.02, 0.021, 0.022, 0.023, 0.024, 0.025, 0.03), tokens={"a small draft": 0.0004})
_GENERAL = (0.312, 0.405, 0.447, 0.604, 0.391, 0.287)
_GAIN = {"base": 0.058, "continued": 0.06, "mixed": 0.061, "task": 0.094}


def invented(seeds: Sequence[int] = (0, 1, 2), tasks: dict[str, str | None] | None = None) -> Findings:
    """A whole retraining; the same arguments, the same figures."""
    rng, named = Random(7), TASKS if tasks is None else tasks
    slots = [_slot(rng, *task, _GENERAL[number % 6], seeds) for number, task in enumerate(named.items())]
    return Findings(
        target="family:target",
        draft="family:draft",
        num_speculative_tokens=6,
        seeds=list(seeds),
        k=len(named),
        purity=0.9731,
        slots=[*slots, _slot(rng, "all", None, 0.4123, seeds)],
        served=[PublishedFigures(**_served(0.0, 0.547, 2.713)), PublishedFigures(**_served(1.0, 0.468, 2.286))],
        routing=_routing(rng, [*named, "general"]),
        ks=[KScore(k, 0.18 + 0.025 * min(k, 7), 0.02 + 0.004 * k, 0.98 - 0.06 * max(0, k - 6)) for k in range(2, 11)],
        runs=_runs(rng, len(named), seeds),
        costs=COSTS,
        seconds={
            "collect": 71.2,
            "partition": 14.8,
            "align": 3812.0,
            "router": 64.1,
            "evaluate": 208.5,
            "publish": 0.9,
        },
    )


def _slot(rng: Random, task: str, label: str | None, general: float, seeds: Sequence[int]) -> SlotFindings:
    kinds = {kind: general + gain * rng.uniform(0.3, 1.2) for kind, gain in _GAIN.items()}
    spread = [(kind, seed, rate + rng.gauss(0, 0.006)) for kind, rate in kinds.items() for seed in seeds]
    decision = "mixed" if task in ("knights-knaves", "all") else "task"
    return SlotFindings(
        task=task,
        label=label,
        prompts={"train": 1480, "stop": 60, "promotion": 58, "test": 62},
        candidates=[
            Candidate(
                name="general",
                seed=None,
                speedup=_speedup(general),
                acceptance_rate=general,
                tokens_per_pass=1 + 2.8 * general,
                versus_general=None,
            ),
            *(Candidate(name=kind, seed=seed, **_against(rate, general, 0.021)) for kind, seed, rate in spread),
        ],
        pooled=[
            Pooled(
                name="general",
                speedup=_speedup(general),
                acceptance_rate=general,
                tokens_per_pass=1 + 2.8 * general,
                versus_general=None,
            ),
            *(
                Pooled(name=kind, **_against(rate, general, 0.017), versus_base=_difference(rate, kinds["base"], 0.011))
                for kind, rate in kinds.items()
            ),
        ],
        decision=decision,
        reason=f"on 58 prompts: mixed +0.039 (+0.020 to +0.057), better than general; {decision} & <others> say more",
    )


def _against(rate: float, general: float, half: float) -> dict[str, object]:
    difference = _difference(rate, general, half)
    return {
        "speedup": _speedup(rate),
        "acceptance_rate": rate,
        "tokens_per_pass": 1 + 2.8 * rate,
        "versus_general": difference,
    }


def _speedup(rate: float) -> float:
    return 0.9 + 1.7 * rate


def _difference(rate: float, other: float, half: float) -> Difference:
    gain = _speedup(rate) / _speedup(other) - 1
    return Difference(gain, gain - half, gain + 0.9 * half)


def _served(temperature: float, rate: float, tokens: float) -> dict[str, float]:
    return {
        "temperature": temperature,
        "speedup": 0.8 * tokens,
        "acceptance_rate": rate,
        "tokens_per_pass": tokens,
        "general_speedup": 0.8 * (tokens - 0.437),
        "general_acceptance_rate": rate - 0.098,
        "general_tokens_per_pass": tokens - 0.437,
    }


def _routing(rng: Random, classes: list[str]) -> Routing:
    confusion = [[0] * len(classes) for _ in classes]
    for true in range(len(classes)):
        for _ in range(60):
            confusion[true][true if rng.random() < 0.96 else rng.randrange(len(classes))] += 1
    return Routing(
        classes=classes,
        confusion=confusion,
        classifiers=[
            ClassifierFigures(name="router", agreement=0.9812, reworded=0.9547, p50_ms=0.412, p99_ms=1.268),
        ],
    )


def _runs(rng: Random, tasks: int, seeds: Sequence[int]) -> list[RunTime]:
    names = [f"{kind}-seed-{seed}" for kind in ("base", "continued", "mixed") for seed in seeds]
    names += [f"task-{task}-seed-{seed}" for seed in seeds for task in range(tasks)]
    free, runs = [1790000000.0, 1790000003.0], []
    for name in names:
        steps = range(50, 801 if name.startswith("task") else 3601, 50)
        rates = [0.5 - 0.2 * 0.8 ** (step / 100) - step * 1e-5 + rng.gauss(0, 0.002) for step in steps]
        worker = free.index(min(free))
        began = free[worker]
        free[worker] = began + len(steps) * 5 * rng.uniform(0.9, 1.1)
        runs.append(RunTime(name, began, free[worker] - 1, list(steps), rates))
    return runs
