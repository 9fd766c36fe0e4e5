"""The two sides that a watch compares, and the traces that a retraining learns from while others come and go."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.tasks.drift import Observation
from core.traces.store import Trace, TraceStore, written_at
from tests.train_jobs.watching import answer, answers, record
from train_jobs.watch.watched_traces import Epoch, WatchedTraces, freeze


class Measured:
    """Distances that name the prompt, and the prompts that were asked for, in calls."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __call__(self, traces: Sequence[Trace]) -> list[float | None]:
        self.calls.append([trace.prompt_ids[0] for trace in traces])
        return [float(trace.prompt_ids[0]) for trace in traces]


def watched(
    directory: Path, since: float = 0.0, bundle: str | None = "v1", measured: Measured | None = None
) -> WatchedTraces:
    return WatchedTraces(
        directory / "traces", directory / "reference.json", Epoch(bundle, since), measured or Measured()
    )


def prompts(side: Sequence[Observation]) -> list[float | None]:
    return [one.distance for one in side]


def numbers(*shards: Sequence[Trace]) -> list[int]:
    return [trace.prompt_ids[0] for shard in shards for trace in shard]


def test_the_first_answers_and_the_last_ones_are_whole_shards_of_the_bundle_in_order(tmp_path: Path) -> None:
    shards = [answers(4, "v1") for _ in range(7)]
    record(tmp_path / "traces", answers(9, "v0"))
    for shard in shards:
        record(tmp_path / "traces", [*shard, *answers(2, "v0"), answer("v1", choice=1)])
    found = watched(tmp_path).compared(6, 6, 0.0)
    assert prompts(found.reference) == numbers(*shards[:2])
    assert prompts(found.recent) == numbers(*shards[-2:])


def test_there_are_no_recent_answers_before_the_reference_is_full(tmp_path: Path) -> None:
    record(tmp_path / "traces", answers(5, "v1"))
    traces = watched(tmp_path)
    found = traces.compared(6, 6, 0.0)
    assert (len(found.reference), found.recent) == (5, [])
    assert not (tmp_path / "reference.json").exists()
    record(tmp_path / "traces", answers(1, "v1"))
    assert [len(side) for side in traces.compared(6, 6, 0.0)] == [6, 0]
    last = answers(2, "v1")
    record(tmp_path / "traces", last)
    assert prompts(traces.compared(6, 6, 0.0).recent) == numbers(last)


def test_the_reference_outlives_its_shards_and_the_process_and_holds_no_tokens(tmp_path: Path) -> None:
    first, last = answers(6, "v1"), answers(3, "v1")
    shard = record(tmp_path / "traces", first)
    before = watched(tmp_path).compared(6, 6, 0.0).reference
    shard.unlink()
    record(tmp_path / "traces", last)
    found = watched(tmp_path).compared(6, 6, 0.0)
    assert found.reference == before
    assert prompts(found.recent) == numbers(last)
    assert "output_ids" not in (tmp_path / "reference.json").read_text()


def test_another_bundle_or_a_retraining_starts_a_new_reference(tmp_path: Path) -> None:
    old = record(tmp_path / "traces", answers(6, "v1"))
    assert len(watched(tmp_path).compared(6, 6, 0.0).reference) == 6
    newer, other = answers(6, "v1"), answers(6, "v2")
    for shard in (newer, other):
        record(tmp_path / "traces", shard)
    assert prompts(watched(tmp_path, since=written_at(old)).compared(6, 6, 0.0).reference) == numbers(newer)
    assert prompts(watched(tmp_path, bundle="v2").compared(6, 6, 0.0).reference) == numbers(other)


def test_answers_from_before_a_moment_are_not_recent(tmp_path: Path) -> None:
    record(tmp_path / "traces", answers(6, "v1"))
    tried = record(tmp_path / "traces", answers(6, "v1"))
    last = answers(2, "v1")
    record(tmp_path / "traces", last)
    assert prompts(watched(tmp_path).compared(6, 9, written_at(tried)).recent) == numbers(last)


def test_a_shard_is_read_and_its_prompts_embedded_once_all_new_ones_together(tmp_path: Path) -> None:
    measured = Measured()
    traces = watched(tmp_path, measured=measured)
    shards = [answers(3, "v1") for _ in range(5)]
    for shard in shards:
        record(tmp_path / "traces", shard)
    traces.compared(6, 6, 0.0)
    assert measured.calls == [numbers(*shards[:2]), numbers(shards[4], shards[3])]
    later = answers(3, "v1")
    record(tmp_path / "traces", later)
    traces.compared(6, 6, 0.0)
    traces.compared(6, 6, 0.0)
    assert measured.calls[2:] == [numbers(later)]


def test_no_traces_are_no_answers(tmp_path: Path) -> None:
    assert watched(tmp_path).compared(6, 6, 0.0) == ([], [])


def test_frozen_traces_stay_as_they_were_when_others_come_and_they_are_deleted(tmp_path: Path) -> None:
    shard = record(tmp_path / "traces", answers(3))
    (tmp_path / "traces" / "other.txt").write_text("x")
    kept, found = shard.read_bytes(), shard.stat()
    freeze(tmp_path / "traces", tmp_path / "run" / "traces")
    shard.unlink()
    record(tmp_path / "traces", answers(3))
    freeze(tmp_path / "traces", tmp_path / "run" / "traces")
    [frozen] = (tmp_path / "run" / "traces").iterdir()
    assert (frozen.name, frozen.read_bytes(), frozen.stat().st_mtime_ns) == (shard.name, kept, found.st_mtime_ns)
    assert [trace.choice for trace in TraceStore(tmp_path / "run" / "traces")] == [0, 0, 0]


def test_what_a_killed_freezing_left_is_no_frozen_directory(tmp_path: Path) -> None:
    record(tmp_path / "traces", answers(3))
    half = tmp_path / "run" / ".aside-traces"
    half.mkdir(parents=True)
    (half / "half").write_text("x")
    freeze(tmp_path / "traces", tmp_path / "run" / "traces")
    assert [file.suffix for file in (tmp_path / "run" / "traces").iterdir()] == [".parquet"]
    assert not half.exists()


def test_traces_are_copied_where_they_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault: another file system."""

    def refused(*_given: object, **_named: object) -> None:
        raise OSError("Invalid cross-device link")

    shard = record(tmp_path / "traces", answers(3))
    monkeypatch.setattr(os, "link", refused)
    freeze(tmp_path / "traces", tmp_path / "run" / "traces")
    [frozen] = (tmp_path / "run" / "traces").iterdir()
    assert frozen.stat().st_ino != shard.stat().st_ino
    assert (frozen.read_bytes(), frozen.stat().st_mtime_ns) == (shard.read_bytes(), shard.stat().st_mtime_ns)
