"""The findings of a retraining, from what the stages before left."""

from __future__ import annotations

from pathlib import Path

from core.draft_key import GENERAL
from core.traces.store import parquet_of
from tests.train_jobs.report import invented
from tests.train_jobs.stages.test_evaluate import accepting
from tests.train_jobs.stages.test_partition import FIRST, partitioned
from tests.train_jobs.watching import answers
from train_jobs.drafts.candidates import CONTINUED, MIXED
from train_jobs.drafts.training_runs import planned_runs
from train_jobs.report.page import write_report
from train_jobs.stages.evaluate import Judge, candidate_jobs
from train_jobs.stages.report import findings
from train_jobs.work.artefacts import COSTS, LIVE_DRAFTS, SPLITS, WINNERS, LiveDrafts, TaskAssignment, write_json
from train_jobs.work.findings import RunTime
from train_jobs.work.workspace import Workspace


def evaluated(directory: Path) -> Workspace:
    """A work directory of two tasks up to its report. All held-out prompts but some of `stop` are of the first."""
    work = partitioned(directory, FIRST)
    tasks = work.tasks()
    labels = {split: [0] * 100 if split in ("promotion", "test") else tasks.labels(split) for split in SPLITS}
    TaskAssignment.save(work.steps["partition"].directory, tasks.partition, labels)
    for split in SPLITS:
        (work.steps["collect"].start() / f"{split}-0000.parquet").write_bytes(parquet_of(answers(100)))
    write_json(work.steps["align"].start() / LIVE_DRAFTS, LiveDrafts())
    for run in planned_runs(work):
        work.drafts().keep_curve(RunTime(run.name, 0.0, 1.0, [0, 20], [0.1, 0.2]))
    write_json(work.steps["evaluate"].start() / COSTS, invented.COSTS)
    jobs = list(candidate_jobs(work))
    for place, job in enumerate(jobs):
        work.scores().keep(
            job.name,
            {
                split: {number: accepting(place + number % 2) for number in numbers}
                for split, numbers in job.numbers.items()
            },
        )
    winners = Judge(work, {job.name: job.draft for job in jobs}).winners()
    write_json(work.steps["evaluate"].directory / WINNERS, winners)
    return work


def test_a_task_without_test_prompts_has_no_figures(tmp_path: Path) -> None:
    work = evaluated(tmp_path)
    found = findings(work, {})
    [first, second, everything] = found.slots
    assert (first.prompts["test"], second.prompts["test"], everything.prompts["test"]) == (100, 0, 100)
    assert (second.candidates, second.pooled) == ([], [])
    for slot in (first, everything):
        assert {pooled.name for pooled in slot.pooled} >= {GENERAL, CONTINUED, MIXED}
        assert all(pooled.versus_general is not None for pooled in slot.pooled if pooled.name != GENERAL)
    assert "no held-out prompt is of this task" in second.reason
    assert everything.pooled[0].speedup == 1.0 + everything.pooled[0].acceptance_rate
    page = write_report(found, tmp_path).read_text()
    assert "20 ms for a plain pass, 1.50 times that for one over 7 rows, 0.4 ms for a token of the drafts" in page
    assert "No held-out prompt is of this task" in page
    assert work.tasks().names[1] in page
