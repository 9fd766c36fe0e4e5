"""Last stage: everything that was found, in one place, and the report of it.

Enters: what the other stages left. Leaves: `Findings`, as findings.json and as a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from core.acceptance import Acceptance, total
from core.bootstrap import compare
from core.traces import Trace
from train_jobs import align, collect, evaluate, partition, routing, study
from train_jobs.collected import HELD_OUT, PARTS, Collected
from train_jobs.config import RetrainConfig
from train_jobs.evaluate import GENERAL, LIVE, TASK, live_run
from train_jobs.findings import Candidate, Findings, Pooled, Served, Slot
from train_jobs.partition import Assigned
from train_jobs.runs import FULL, MIXED, control_run, of_task, planned, task_run
from train_jobs.scores import Scores

Counts = list[Acceptance]


class Summary:
    """Reads what the stages left, once."""

    def __init__(self, config: RetrainConfig) -> None:
        self._config = config
        self._assigned = Assigned(partition.unit(config).directory)
        self._scores = Scores(evaluate.unit(config).directory)
        self._verdict = evaluate.verdict(config)
        collected = Collected(collect.unit(config).directory)
        self._traces = {part: collected.traces(part) for part in PARTS}

    def findings(self, seconds: Mapping[str, float]) -> Findings:
        config, assigned, curves = self._config, self._assigned, study.curves(self._config)
        tasks = range(assigned.partition.k) if self._verdict.tasks else ()
        plan = planned(config.align, assigned)
        return Findings(
            target=config.target.model,
            draft=config.draft,
            num_speculative_tokens=config.evaluate.num_speculative_tokens,
            seeds=list(config.align.seeds),
            k=assigned.partition.k,
            purity=self._purity(),
            slots=[self._task_slot(task) for task in tasks] + [self._general_slot()],
            served=[self._served(law) for law in sorted({trace.params.temperature for trace in self._traces["test"]})],
            routing=routing.routing(config),
            pairs=curves.pairs,
            ks=curves.ks,
            runs=[align.curve(align.unit(config).directory, run.name) for run in plan],
            seconds=dict(seconds),
        )

    def _task_slot(self, task: int) -> Slot:
        name = self._assigned.names[task]
        numbers = of_task(self._assigned.labels("test"), task)
        candidates = [(kind, seed, self._of(kind, seed, numbers, task)) for kind, seed in self._kinds(name)]
        ruling = self._verdict.tasks[name]
        return self._slot(name, numbers, candidates, ruling.decision, ruling.reason, task)

    def _general_slot(self) -> Slot:
        numbers = list(range(len(self._traces["test"])))
        kinds = [kind for kind in self._kinds(GENERAL) if kind[0] != TASK or self._verdict.tasks]
        candidates = [(kind, seed, self._of(kind, seed, numbers, None)) for kind, seed in kinds]
        ruling = self._verdict.general
        return self._slot("all", numbers, candidates, ruling.decision, ruling.reason, None)

    def _kinds(self, slot: str) -> list[tuple[str, int | None]]:
        """All candidates of a slot: their kind and seed."""
        kinds = (MIXED, FULL, TASK) if self._config.align.full_fine_tune else (MIXED, TASK)
        live = [(LIVE, None)] if self._scores.has(live_run(slot)) else []
        return [(GENERAL, None), *live, *((kind, seed) for kind in kinds for seed in self._config.align.seeds)]

    def _of(self, kind: str, seed: int | None, numbers: Sequence[int], task: int | None) -> Counts:
        """Test counts; the adapters of all tasks together (`task` None) each on the prompts of its own."""
        if kind != TASK or seed is None:
            slot = GENERAL if task is None else self._assigned.names[task]
            name = {GENERAL: GENERAL, LIVE: live_run(slot)}.get(kind) or control_run(kind, seed or 0)
            return self._scores.of(name, "test", numbers)
        labels = self._assigned.labels("test")
        return [self._scores.of(task_run(labels[number], seed), "test", [number])[0] for number in numbers]

    def _slot(
        self,
        name: str,
        numbers: Sequence[int],
        candidates: Sequence[tuple[str, int | None, Counts]],
        decision: str,
        reason: str,
        task: int | None,
    ) -> Slot:
        prompts = [self._traces["test"][number].prompt_ids for number in numbers]
        general = candidates[0][2]
        by_kind: dict[str, list[Counts]] = {}
        for kind, _, counts in candidates:
            by_kind.setdefault(kind, []).append(counts)
        return Slot(
            task=name,
            label=None if task is None else self._label(task),
            prompts={part: self._count(part, task) for part in PARTS},
            candidates=[_candidate(kind, seed, counts, general, prompts) for kind, seed, counts in candidates],
            pooled=[_pooled(kind, found, general, prompts) for kind, found in by_kind.items()],
            decision=decision,
            reason=reason,
        )

    def _count(self, part: str, task: int | None) -> int:
        labels = self._assigned.labels(part)  # type: ignore[arg-type]
        return len(labels) if task is None else labels.count(task)

    def _label(self, task: int) -> str | None:
        """What most of its prompts to learn from are called, if they are called anything."""
        traces = (self._traces["train"][number] for number in of_task(self._assigned.labels("train"), task))
        called = Counter(trace.task for trace in traces if trace.task)
        return called.most_common(1)[0][0] if called else None

    def _purity(self) -> float | None:
        """Share of the held-out prompts called what their task is mostly called."""
        names = [self._label(task) for task in range(self._assigned.partition.k)]
        pairs = [
            (trace.task, names[label])
            for part in HELD_OUT
            for trace, label in zip(self._traces[part], self._assigned.labels(part), strict=True)
            if trace.task
        ]
        return float(np.mean([called == name for called, name in pairs])) if pairs else None

    def _served(self, temperature: float) -> Served:
        """Every test prompt of that temperature with what its slot got, by the partition's word."""
        traces: list[Trace] = self._traces["test"]
        numbers = [number for number, trace in enumerate(traces) if trace.params.temperature == temperature]
        published = total(self._published(number) for number in numbers)
        general = total(self._scores.of(GENERAL, "test", numbers))
        return Served(
            temperature=temperature,
            acceptance_rate=published.acceptance_rate,
            tokens_per_pass=published.tokens_per_pass,
            general_acceptance_rate=general.acceptance_rate,
            general_tokens_per_pass=general.tokens_per_pass,
        )

    def _published(self, number: int) -> Acceptance:
        task = self._assigned.labels("test")[number]
        slot = self._assigned.names[task] if self._verdict.tasks and not self._verdict.one_draft else GENERAL
        ruling = self._verdict.tasks.get(slot, self._verdict.general)
        kind, seed = ruling.decision, self._config.align.seeds[0]
        names = {GENERAL: GENERAL, LIVE: live_run(slot), TASK: task_run(task, seed)}
        return self._scores.of(names.get(kind) or control_run(kind, seed), "test", [number])[0]


def _candidate(
    kind: str, seed: int | None, counts: Counts, general: Counts, prompts: Sequence[tuple[int, ...]]
) -> Candidate:
    whole = total(counts)
    return Candidate(
        name=kind,
        seed=seed,
        acceptance_rate=whole.acceptance_rate,
        tokens_per_pass=whole.tokens_per_pass,
        versus_general=None if kind == GENERAL else compare(counts, general, prompts),
    )


def _pooled(kind: str, found: Sequence[Counts], general: Counts, prompts: Sequence[tuple[int, ...]]) -> Pooled:
    """All seeds together: each prompt drawn with all of them."""
    counts = [count for of_seed in found for count in of_seed]
    whole = total(counts)
    difference = compare(counts, general * len(found), list(prompts) * len(found))
    return Pooled(
        name=kind,
        acceptance_rate=whole.acceptance_rate,
        tokens_per_pass=whole.tokens_per_pass,
        versus_general=None if kind == GENERAL else difference,
    )
