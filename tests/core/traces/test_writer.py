"""The trace writer: when it writes, what it drops and counts, and what is left when it is killed."""

from __future__ import annotations

import errno
import logging
import math
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import parquet

from core.traces import writer as writer_module
from core.traces.store import Trace, TraceStore
from core.traces.writer import TraceQueue, TraceWriter
from tests.core.bundle.bundles import ROOT
from tests.core.traces.test_store import choices, trace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# ---- the queue


def test_a_shard_is_due_when_its_first_trace_has_waited_long_enough() -> None:
    clock = Clock()
    queue = TraceQueue(flush_records=4, flush_seconds=60, clock=clock)
    assert queue.due_in() == math.inf
    queue.add(trace(0))
    assert queue.due_in() == 60
    clock.now += 45
    queue.add(trace(1))
    assert queue.due_in() == 15
    clock.now += 20
    assert queue.due_in() == 0
    assert queue.take() == [trace(0), trace(1)]
    assert queue.due_in() == math.inf


def test_a_shard_is_due_when_it_is_full_and_what_is_left_waits_for_its_own_time() -> None:
    clock = Clock()
    queue = TraceQueue(flush_records=3, flush_seconds=60, clock=clock)
    for number in range(4):
        clock.now += 1
        queue.add(trace(number))
        assert (queue.due_in() == 0) == (number >= 2)
    assert queue.take() == [trace(0), trace(1), trace(2)]
    assert queue.due_in() == 60


def test_long_traces_make_shards_of_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SHARD_TOKENS", 1000)
    queue = TraceQueue()
    for number in range(3):
        queue.add(trace(number, 250))
        assert (queue.due_in() == 0) == (number >= 1)
    assert len(queue.take()) == 2
    assert queue.due_in() > 0


def test_a_full_queue_takes_no_more_and_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = TraceQueue(flush_records=100, limit=2)
    assert [queue.add(trace(number)) for number in range(3)] == [None, None, "dropped_queue_full"]
    assert queue.due_in() == 0
    assert len(queue.take()) == 2
    assert queue.add(trace(4)) is None
    monkeypatch.setattr(writer_module, "QUEUE_TOKENS", 1000)
    long = TraceQueue()
    assert [long.add(trace(number, 250)) for number in range(3)] == [None, None, "dropped_queue_full"]


# ---- the thread


def test_shards_hold_so_many_traces_and_the_last_what_is_left(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    writer = TraceWriter(store, TraceQueue(flush_records=4))
    for number in range(10):
        writer.add(trace(number))
    writer.close()
    assert choices(store) == list(range(10))
    assert [parquet.read_metadata(shard).num_rows for shard in store.shards()] == [4, 4, 2]
    assert store.counts == {"written": 10, "shards": 3}


def test_a_lone_trace_is_written_after_a_while(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    writer = TraceWriter(store, TraceQueue(flush_seconds=0.01))
    writer.add(trace(0))
    eventually(store.shards)
    writer.add(trace(1))
    writer.close()
    assert choices(store) == [0, 1]
    assert len(store.shards()) == 2


def test_old_shards_go_though_nobody_asks_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TraceStore(tmp_path).append([trace(0)])
    monkeypatch.setattr(writer_module, "IDLE_SECONDS", 0.01)
    writer = TraceWriter(TraceStore(tmp_path, max_days=0.1 / 86400))
    eventually(lambda: not list(tmp_path.iterdir()))
    writer.close()
    assert writer.counts == {"dropped_expired": 1}


def eventually(holds: Callable[[], object], seconds: float = 20.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.005)


class StuckStore(TraceStore):
    """A store on a disk that hangs until released."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.reached, self.freed = threading.Event(), threading.Event()

    def append(self, traces: Any) -> None:
        self.reached.set()
        assert self.freed.wait(60)
        super().append(traces)


def test_a_disk_that_hangs_costs_what_the_queue_cannot_hold(tmp_path: Path) -> None:
    store = StuckStore(tmp_path)
    writer = TraceWriter(store, TraceQueue(flush_records=1, limit=3))
    writer.add(trace(0))
    assert store.reached.wait(60)
    for number in range(1, 6):
        writer.add(trace(number))
    assert store.counts == {"dropped_queue_full": 2}
    store.freed.set()
    writer.close()
    assert choices(store) == [0, 1, 2, 3]


def test_a_trace_that_cannot_be_encoded_takes_no_other_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = TraceStore(tmp_path)
    writer = TraceWriter(store, TraceQueue(flush_records=8))
    with caplog.at_level(logging.WARNING):
        for number in range(10):
            writer.add(trace(number) if number != 5 else msgspec.structs.replace(trace(0), choice=1 << 70))
        writer.close()
    assert choices(store) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert store.counts["written"] == 9
    assert store.counts["dropped_unwritable"] == store.counts["failed_writes"] == 1
    assert str(1 << 70) not in caplog.text


# ---- redaction


def without_prompt(found: Trace) -> Trace | None:
    """Odd choices are not kept at all, that of 4 makes it fail."""
    if found.choice == 4:
        raise ValueError(f"the prompt was {found.prompt_ids}")
    return None if found.choice % 2 else msgspec.structs.replace(found, prompt_ids=(0,))


def test_the_hook_decides_what_is_kept_and_its_failures_are_told_once_and_without_content(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = TraceStore(tmp_path)
    writer = TraceWriter(store, redact=without_prompt)
    with caplog.at_level(logging.WARNING):
        for number in (0, 1, 2, 3, 4, 4, 6):
            writer.add(trace(number))
        writer.close()
    assert choices(store) == [0, 2, 6]
    assert {found.prompt_ids for found in store} == {(0,)}
    assert store.counts == {"written": 3, "shards": 1, "dropped_redacted": 2, "dropped_redaction_failed": 2}
    [record] = caplog.records
    assert "ValueError at " in record.getMessage()
    assert "test_writer.py:" in record.getMessage()
    assert "the prompt was" not in caplog.text


def test_a_hook_that_keeps_nothing_leaves_no_empty_shard(tmp_path: Path) -> None:
    writer = TraceWriter(TraceStore(tmp_path), redact=lambda _: None)
    writer.add(trace(0))
    writer.close()
    assert list(tmp_path.iterdir()) == []
    assert writer.counts == {"dropped_redacted": 1}


def test_what_a_hook_makes_of_a_trace_may_be_nonsense(tmp_path: Path) -> None:
    nonsense: Any = lambda found: "secret" if found.choice == 1 else found  # noqa: E731
    store = TraceStore(tmp_path)
    writer = TraceWriter(store, redact=nonsense)
    for number in range(3):
        writer.add(trace(number))
    writer.close()
    assert choices(store) == [0, 2]
    assert store.counts["dropped_unwritable"] == 1


# ---- full disks and kills


def test_a_full_disk_costs_traces_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    store = TraceStore(tmp_path)
    store.append([trace(0)])
    writer = TraceWriter(store, TraceQueue(flush_records=2, flush_seconds=0.01))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        for number in range(1, 6):
            writer.add(trace(number))
        eventually(lambda: store.counts["dropped_unwritable"] == 5)
    assert "No space left" in caplog.text
    assert [file.suffix for file in tmp_path.iterdir()] == [".parquet"]
    writer.add(trace(6))
    writer.close()
    assert choices(store) == [0, 6]
    assert store.counts["failed_writes"] >= 3


def test_a_file_size_limit_of_the_kernel_costs_traces_and_nothing_else(tmp_path: Path) -> None:
    program = f"""
import resource, signal
from pathlib import Path
from core.traces.writer import TraceWriter
from core.traces.store import TraceStore
from tests.core.traces.test_store import trace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))
store = TraceStore(Path({str(tmp_path)!r}))
for number, length in enumerate((20, 20_000, 20)):
    writer = TraceWriter(store)
    writer.add(trace(number, length))
    writer.close()
assert store.counts == {{"written": 2, "shards": 2, "failed_writes": 1, "dropped_unwritable": 1}}, store.counts
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    assert choices(TraceStore(tmp_path)) == [0, 2]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_directory_that_cannot_be_made_costs_traces_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    writer = TraceWriter(TraceStore(tmp_path / "file" / "traces"))
    writer.add(trace(0))
    writer.close()
    assert writer.counts == {"failed_writes": 1, "dropped_unwritable": 1}


WRITING = """
import itertools, sys, time
from pathlib import Path
from core.traces.writer import TraceQueue, TraceWriter
from core.traces.store import TraceStore
from tests.core.traces.test_store import trace
writer = TraceWriter(TraceStore(Path(sys.argv[1])), TraceQueue(flush_records=3, flush_seconds=0.01))
told = 0
for number in itertools.count(int(sys.argv[2])):
    writer.add(trace(number))
    time.sleep(0.0002)
    if writer.counts["written"] > told:
        told = writer.counts["written"]
        print(told, flush=True)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_what_a_killed_process_has_written_is_there_and_whole(tmp_path: Path, kills: int) -> None:
    """The process tells how many traces it has written; all of them and only whole shards are found."""
    store, rng, told = TraceStore(tmp_path), random.Random(kills), dict[int, int]()
    for first in range(0, kills * 1_000_000, 1_000_000):
        command = [sys.executable, "-c", WRITING, str(tmp_path), str(first)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            time.sleep(rng.uniform(0.0, 0.2))
            process.kill()
            told[first] = int([*lines, *process.stdout.read().split()][-1])
        found = choices(store)
        for begin, number in told.items():
            of_process = [choice for choice in found if begin <= choice < begin + 1_000_000]
            assert of_process == list(range(begin, begin + len(of_process)))
            assert len(of_process) >= number
    assert store.counts == {}
