"""Stage 7, report: the findings of all stages as one record, written as JSON and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from core.confidence_intervals import compare
from core.draft_key import GENERAL
from core.replay.replay import AcceptanceCounts, total
from train_jobs.cluster.progress import Progress
from train_jobs.config import RetrainConfig
from train_jobs.drafts.candidates import BASE, CONTINUED, LIVE, MIXED, TASK, draft_name
from train_jobs.drafts.training_runs import planned_runs
from train_jobs.report.page import write_report
from train_jobs.work.artefacts import HELD_OUT, SPLITS
from train_jobs.work.findings import Candidate, Findings, Pooled, PublishedFigures, SlotFindings
from train_jobs.work.models import replay_terms
from train_jobs.work.workspace import Workspace

NEEDS = ("publish",)
Counts = list[AcceptanceCounts]


def inputs(_config: RetrainConfig) -> list[object]:
    """All figures are of earlier stages."""
    return []


def run(work: Workspace, progress: Progress) -> None:
    """Write findings.json, the plots and report.html."""
    directory = work.steps["report"].start()
    with progress.stage("report", 1) as report:
        seconds = {name: step.seconds for name, step in work.steps.items() if name != "report"}
        write_report(findings(work, seconds), directory)
        report("page", 1, 1, "")


def findings(work: Workspace, seconds: Mapping[str, float]) -> Findings:
    """All figures, from the results of the stages before; `seconds` are those that each stage took."""
    return _FindingsBuilder(work).findings(seconds)


class _FindingsBuilder:
    """Reads the results of all stages once."""

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._align = work.config.align
        self._tasks = work.tasks()
        self._scores = work.scores()
        self._winners = work.winners()
        self._traces = {split: work.traces(split) for split in SPLITS}

    def findings(self, seconds: Mapping[str, float]) -> Findings:
        work, drafts = self._work, self._work.drafts()
        temperatures = {trace.params.temperature for trace in self._traces["test"]}
        return Findings(
            target=work.config.target.model,
            draft=work.config.draft,
            num_speculative_tokens=replay_terms(work.config).num_speculative_tokens,
            seeds=list(self._align.seeds),
            k=self._tasks.partition.k,
            purity=self._purity(),
            slots=[self._slot(slot, task) for task, slot in enumerate(self._tasks.routed)]
            + [self._slot(GENERAL, None)],
            served=[self._published_figures(temperature) for temperature in sorted(temperatures)],
            routing=work.routing(),
            ks=list(self._tasks.partition.scores),
            changes=work.task_changes(),
            costs=work.costs(),
            runs=[drafts.curve(run.name) for run in planned_runs(work)],
            seconds=dict(seconds),
        )

    def _slot(self, slot: str, task: int | None) -> SlotFindings:
        """A task's slot, or the general slot, which all prompts together decide."""
        winner = self._winners.general if task is None else self._winners.tasks[slot]
        candidates, pooled = self._compared(slot, task) if self._tasks.numbers("test", task) else ([], [])
        return SlotFindings(
            task="all" if task is None else slot,
            label=None if task is None else self._label(task),
            prompts={split: len(self._tasks.numbers(split, task)) for split in SPLITS},
            candidates=candidates,
            pooled=pooled,
            decision=winner.decision,
            reason=winner.reason,
        )

    def _compared(self, slot: str, task: int | None) -> tuple[list[Candidate], list[Pooled]]:
        """All candidates of a slot on its test prompts, of which there must be some."""
        prompts = [self._traces["test"][number].prompt_ids for number in self._tasks.numbers("test", task)]
        candidates = [(kind, seed, self._counts(kind, seed, slot, task)) for kind, seed in self._candidates(slot)]
        general = candidates[0][2]
        by_kind: dict[str, list[Counts]] = {}
        for kind, _, counts in candidates:
            by_kind.setdefault(kind, []).append(counts)
        return (
            [_candidate(kind, seed, counts, general, prompts) for kind, seed, counts in candidates],
            [_pooled(kind, seeds, general, by_kind[BASE], prompts) for kind, seeds in by_kind.items()],
        )

    def _candidates(self, slot: str) -> list[tuple[str, int | None]]:
        """Kind and seed of every candidate; for the general slot also the adapters of all tasks, for comparison."""
        kinds = [BASE, CONTINUED, MIXED, *([TASK] if self._tasks.routed else [])]
        live = [(LIVE, None)] if self._scores.has(draft_name(LIVE, slot, None, 0)) else []
        return [(GENERAL, None), *live, *((kind, seed) for kind in kinds for seed in self._align.seeds)]

    def _counts(self, kind: str, seed: int | None, slot: str, task: int | None) -> Counts:
        """Test counts of a candidate. With `task` None, the kind `task` means each prompt's own adapter."""
        numbers, labels = self._tasks.numbers("test", task), self._tasks.labels("test")
        if kind != TASK:
            return self._scores.of(draft_name(kind, slot, task, seed or 0), "test", numbers)
        names = {number: draft_name(TASK, slot, labels[number], seed or 0) for number in numbers}
        return [self._scores.of(name, "test", [number])[0] for number, name in names.items()]

    def _label(self, task: int) -> str | None:
        """The commonest label of a task's training prompts, if they came with labels."""
        traces = (self._traces["train"][number] for number in self._tasks.numbers("train", task))
        labels = Counter(trace.task for trace in traces if trace.task)
        return labels.most_common(1)[0][0] if labels else None

    def _purity(self) -> float | None:
        """Share of the labelled held-out prompts that bear the commonest label of their task."""
        commonest = [self._label(task) for task in range(self._tasks.partition.k)]
        pairs = [
            (trace.task, commonest[task])
            for split in HELD_OUT
            for trace, task in zip(self._traces[split], self._tasks.labels(split), strict=True)
            if trace.task
        ]
        return float(np.mean([label == common for label, common in pairs])) if pairs else None

    def _published_figures(self, temperature: float) -> PublishedFigures:
        """All test prompts of a temperature, each with the draft of its slot."""
        traces = enumerate(self._traces["test"])
        numbers = [number for number, trace in traces if trace.params.temperature == temperature]
        published = total(self._published_counts(number) for number in numbers)
        general = total(self._scores.of(GENERAL, "test", numbers))
        return PublishedFigures(
            temperature=temperature,
            speedup=published.speedup,
            acceptance_rate=published.acceptance_rate,
            tokens_per_pass=published.tokens_per_pass,
            general_speedup=general.speedup,
            general_acceptance_rate=general.acceptance_rate,
            general_tokens_per_pass=general.tokens_per_pass,
        )

    def _published_counts(self, number: int) -> AcceptanceCounts:
        task = self._tasks.labels("test")[number]
        slot = self._winners.owner(self._tasks.names[task])
        name = draft_name(self._winners.slots[slot].decision, slot, task, self._align.seeds[0])
        return self._scores.of(name, "test", [number])[0]


def _candidate(
    kind: str, seed: int | None, counts: Counts, general: Counts, prompts: Sequence[tuple[int, ...]]
) -> Candidate:
    whole = total(counts)
    return Candidate(
        name=kind,
        seed=seed,
        speedup=whole.speedup,
        acceptance_rate=whole.acceptance_rate,
        tokens_per_pass=whole.tokens_per_pass,
        versus_general=None if kind == GENERAL else compare(counts, general, prompts, "speedup"),
    )


def _pooled(
    kind: str, seeds: Sequence[Counts], general: Counts, bases: Sequence[Counts], prompts: Sequence[tuple[int, ...]]
) -> Pooled:
    """All seeds of a kind together; a bootstrap sample draws a prompt with all its seeds."""
    counts = [count for of_seed in seeds for count in of_seed]
    whole, repeated = total(counts), list(prompts) * len(seeds)
    base = [count for of_seed in bases for count in of_seed]
    return Pooled(
        name=kind,
        speedup=whole.speedup,
        acceptance_rate=whole.acceptance_rate,
        tokens_per_pass=whole.tokens_per_pass,
        versus_general=None if kind == GENERAL else compare(counts, general * len(seeds), repeated, "speedup"),
        versus_base=compare(counts, base, repeated, "speedup") if kind in (CONTINUED, MIXED, TASK) else None,
    )
