"""Scoring of drafts on held-out traces, spread over the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
import torch

from core.bundle.manifest import MeasuredCosts
from core.replay.replay import score_draft
from core.replay.speed import DraftCosts, draft_shape
from train_jobs.cluster.progress import Progress, ReportProgress
from train_jobs.cluster.workers import spread
from train_jobs.drafts.loading import load_draft
from train_jobs.work.artefacts import Split, SplitCounts
from train_jobs.work.models import model_directory, replay_terms
from train_jobs.work.workspace import Workspace


class ScoringJob(msgspec.Struct, frozen=True):
    """A draft to score (an adapter, a whole model, or None for the draft without adapter), and on which traces."""

    name: str
    draft: Path | None
    numbers: dict[Split, list[int]]


def score_all(work: Workspace, jobs: Sequence[ScoringJob], costs: MeasuredCosts, progress: Progress) -> None:
    """Do the jobs that have no scores yet."""
    scores = work.scores()
    missing = [job for job in jobs if not scores.has(job.name)]
    size = sum(len(numbers) for job in missing for numbers in job.numbers.values())
    with progress.stage("evaluate", len(missing), size) as report:
        for _ in spread(Scorer, work.config.evaluate.worker, missing, work, costs, report):
            pass


class Scorer:
    """A worker that keeps the held-out traces in memory."""

    def __init__(self, work: Workspace, costs: MeasuredCosts, report: ReportProgress) -> None:
        self._config = work.config
        self._scores = work.scores()
        self._costs = costs
        self._report = report
        self._terms = replay_terms(work.config)
        self._traces = cache(work.traces)
        torch.set_num_threads(work.config.evaluate.worker.num_cpus)

    def work(self, job: ScoringJob) -> None:
        model, counts = load_draft(self._config, job.draft), SplitCounts()
        costs = DraftCosts.of(self._costs, draft_shape(job.draft, model_directory(self._config.draft)))
        done, total = 0, sum(map(len, job.numbers.values()))
        for split, numbers in job.numbers.items():
            traces, counts[split] = self._traces(split), {}
            for number in numbers:
                [counts[split][number]] = score_draft(model, [traces[number]], self._terms, costs)
                done += 1
                self._report(job.name, done, total, "")
        self._scores.keep(job.name, counts)
