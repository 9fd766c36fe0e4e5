"""The trace store: exact round trips, damaged shards, retention, and a writer that never blocks or raises."""

from __future__ import annotations

import errno
import logging
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from core.distill.traces import UNREADABLE, Trace, TraceStore, TraceWriter
from core.sampling.params import SamplingParams
from tests.core.bundle.bundles import ROOT, killed_writers

PARAMS = SamplingParams(seed=7, max_tokens=64)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SOME = st.floats(0, 2)
IDS = st.lists(st.integers(0, (1 << 31) - 1), max_size=8).map(tuple)
COUNT = st.none() | st.integers(0, 1 << 40)

params = st.builds(
    SamplingParams,
    seed=INT64,
    max_tokens=st.integers(1, 1 << 40),
    temperature=SOME,
    top_k=st.integers(0, 1 << 40),
    top_p=SOME,
    min_p=SOME,
    presence_penalty=SOME,
    frequency_penalty=SOME,
    logit_bias=st.dictionaries(st.integers(0, 50_000), st.floats(-100, 100), max_size=4),
    stop=st.lists(st.text(st.characters(codec="utf-8"), min_size=1), max_size=4).map(tuple),
    logprobs=st.none() | st.integers(0, 20),
)
traces = st.builds(
    Trace,
    prompt_ids=IDS,
    output_ids=IDS,
    params=params,
    choice=st.integers(0, 100),
    task=st.none() | st.text(st.characters(codec="utf-8")),
    adapter=st.none() | st.text(st.characters(codec="utf-8")),
    proposed=COUNT,
    accepted=COUNT,
    target_passes=COUNT,
)


def trace(number: int, length: int = 20) -> Trace:
    tokens = tuple((number * 7919 + at * 104_729) % 32_000 for at in range(length))
    return Trace(prompt_ids=tokens, output_ids=tokens, params=PARAMS, choice=number)


def choices(store: TraceStore) -> list[int]:
    return [one.choice for one in store]


def written(store: TraceStore) -> int:
    return sum(shard.stat().st_size for shard in store.shards())


@settings(max_examples=60)
@given(st.lists(traces, min_size=1, max_size=5))
def test_traces_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, given_traces: list[Trace]) -> None:
    store = TraceStore(tmp_path_factory.mktemp("traces"))
    store.append(given_traces)
    assert list(store) == given_traces
    assert store.counts == {"written": len(given_traces)}


def test_every_field_has_a_column_and_any_parquet_reader_finds_it(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    store.append([trace(3)])
    [row] = parquet.read_table(store.shards()[0]).to_pylist(maps_as_pydicts="strict")
    assert row.pop("prompt_length") == 20
    assert row.pop("dice") == 1
    assert row.keys() == {field.name for field in msgspec.structs.fields(Trace)} - {"dice"}
    assert row["params"].keys() == {field.name for field in msgspec.structs.fields(SamplingParams)}
    assert row["params"]["seed"] == 7


def test_shards_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    for number in range(5):
        TraceStore(tmp_path).append([trace(number)])
    assert choices(TraceStore(tmp_path)) == [0, 1, 2, 3, 4]
    assert choices(TraceStore(tmp_path / "nowhere")) == []


@pytest.mark.parametrize(("short", "kept"), [(0, 3), (1, 2)])
def test_the_oldest_traces_give_way_and_no_more_than_must(tmp_path: Path, short: int, kept: int) -> None:
    shards = [[trace(number, 20 + 30 * number)] * 2 for number in range(8)]
    unbounded = TraceStore(tmp_path / "all")
    for shard in shards:
        unbounded.append(shard)
    bound = sum(file.stat().st_size for file in unbounded.shards()[-3:]) - short
    store = TraceStore(tmp_path / "few", max_bytes=bound)
    for shard in shards:
        store.append(shard)
        assert written(store) <= bound
    assert list(store) == [one for shard in shards[-kept:] for one in shard]
    assert store.counts == {"written": 16, "dropped_oldest": 16 - 2 * kept}


def test_a_shard_over_the_bound_drives_nothing_out(tmp_path: Path) -> None:
    store = TraceStore(tmp_path, max_bytes=20_000)
    store.append([trace(0)])
    with pytest.raises(OSError, match="bytes in a store of 20000"):
        store.append([trace(number, 500) for number in range(100)])
    assert choices(store) == [0]


def test_two_processes_share_a_directory(tmp_path: Path) -> None:
    """The writer that makes room counts the dropped traces; a reader skips shards deleted meanwhile."""
    one, other = TraceStore(tmp_path), TraceStore(tmp_path, max_bytes=1)
    one.append([trace(0)])
    one.append([trace(1)])
    reader = iter(one)
    assert next(reader) == trace(0)
    for shard in one.shards():
        shard.unlink()
    assert list(reader) == []
    with pytest.raises(OSError, match="bytes in a store"):
        other.append([trace(2)])
    assert one.counts == {"written": 2}


# ---- damage


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    store = TraceStore(tmp_path_factory.mktemp("sound"))
    store.append([trace(number) for number in range(10)])
    [file] = store.shards()
    return file.name, file.read_bytes()


@settings(max_examples=150)
@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_shard_is_set_aside_and_the_others_are_read(
    tmp_path_factory: pytest.TempPathFactory, shard: tuple[str, bytes], at: float, bit: int, cut: bool
) -> None:
    name, raw = shard
    place = int(at * len(raw))
    store = TraceStore(tmp_path_factory.mktemp("damaged"))
    store.append([trace(99)])
    [sound] = store.shards()
    damaged = raw[:place] if cut else raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]
    (sound.parent / name).write_bytes(damaged)
    assert choices(store) == [99]
    assert store.counts["unreadable"] == 1
    assert (sound.parent / (name + UNREADABLE)).read_bytes() == damaged
    assert store.shards() == [sound]


def test_a_shard_of_other_columns_or_dice_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = TraceStore(tmp_path)
    store.append([msgspec.structs.replace(trace(0), dice=2)])  # type: ignore[arg-type]
    store.append([trace(1)])
    assert choices(store) == [1]
    assert "dice" in caplog.text


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    store.append([trace(0)])
    (tmp_path / "notes.parquet").write_bytes(b"mine")
    assert choices(store) == [0]
    assert (tmp_path / "notes.parquet").read_bytes() == b"mine"


# ---- kills and full disks


def test_a_writer_killed_at_any_point_leaves_whole_shards(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / "traces")
    with killed_writers("traces", tmp_path / "traces") as writers:
        finished = [not writers.killed(f"at {point}") for point in range(1, 12)]
    assert finished == sorted(finished)
    assert not finished[0]
    assert finished[-1]
    assert choices(store) == list(range(20)) * len(store.shards())
    assert len(store.shards()) >= sum(finished)
    assert store.counts == {}
    assert any(file.name.startswith(".aside-") for file in (tmp_path / "traces").iterdir())


def test_writers_killed_at_random_leave_whole_shards(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / "traces")
    rng = random.Random(3)
    with killed_writers("traces", tmp_path / "traces") as writers:
        for _ in range(25):
            assert writers.killed(f"for {rng.uniform(0.002, 0.04)}")
    assert store.shards()
    assert choices(store) == list(range(20)) * len(store.shards())
    assert store.counts == {}


def test_what_a_killed_writer_left_goes_when_it_is_old(tmp_path: Path) -> None:
    fresh, old = tmp_path / ".aside-fresh", tmp_path / ".aside-old"
    for file in (fresh, old):
        file.write_bytes(b"half a shard")
    os.utime(old, (1, 1))
    TraceStore(tmp_path).append([trace(0)])
    assert fresh.exists()
    assert not old.exists()


def test_a_full_disk_costs_traces_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    store = TraceStore(tmp_path)
    store.append([trace(0)])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        writer = TraceWriter(store, rows_per_shard=2)
        for number in range(1, 6):
            writer.add(trace(number))
        writer.close()
    assert store.counts == {"written": 1, "dropped_unwritable": 5}
    assert "No space left" in caplog.text
    assert [file.suffix for file in tmp_path.iterdir()] == [".parquet"]
    writer = TraceWriter(store)
    writer.add(trace(6))
    writer.close()
    assert choices(store) == [0, 6]


def test_a_file_size_limit_of_the_kernel_costs_traces_and_nothing_else(tmp_path: Path) -> None:
    program = f"""
import resource, signal
from pathlib import Path
from core.distill.traces import TraceStore, TraceWriter
from tests.core.distill.test_traces import trace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
store = TraceStore(Path({str(tmp_path)!r}))
for number, length in enumerate((20, 5000, 20)):
    writer = TraceWriter(store)
    writer.add(trace(number, length))
    writer.close()
assert store.counts == {{"written": 2, "dropped_unwritable": 1}}, store.counts
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    assert choices(TraceStore(tmp_path)) == [0, 2]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_directory_that_cannot_be_made_costs_traces_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    writer = TraceWriter(TraceStore(tmp_path / "file" / "traces"))
    writer.add(trace(0))
    writer.close()
    assert writer.counts == {"dropped_unwritable": 1}


# ---- the writer


def test_a_trace_that_cannot_be_encoded_does_not_end_the_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = TraceStore(tmp_path)
    writer = TraceWriter(store, rows_per_shard=1)
    with caplog.at_level(logging.ERROR):
        writer.add(msgspec.structs.replace(trace(0), choice=1 << 70))
        writer.add(trace(1))
        writer.close()
    assert choices(store) == [1]
    assert store.counts == {"written": 1, "dropped_unwritable": 1}


def test_shards_hold_so_many_traces_and_the_last_what_is_left(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    writer = TraceWriter(store, rows_per_shard=4)
    for number in range(10):
        writer.add(trace(number))
    writer.close()
    assert choices(store) == list(range(10))
    assert [parquet.read_metadata(shard).num_rows for shard in store.shards()] == [4, 4, 2]


def test_a_lone_trace_is_written_after_a_while(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    writer = TraceWriter(store, max_wait=0.01)
    writer.add(trace(0))
    while not store.shards():
        time.sleep(0.005)
    writer.add(trace(1))
    writer.close()
    assert choices(store) == [0, 1]
    assert len(store.shards()) == 2


class StuckStore(TraceStore):
    """A store on a disk that hangs until released."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.reached, self.freed = threading.Event(), threading.Event()

    def append(self, traces: Any) -> None:
        self.reached.set()
        self.freed.wait()
        super().append(traces)


def test_a_disk_that_hangs_costs_what_the_queue_cannot_hold(tmp_path: Path) -> None:
    store = StuckStore(tmp_path)
    writer = TraceWriter(store, rows_per_shard=1, max_queued=3)
    writer.add(trace(0))
    store.reached.wait()
    for number in range(1, 6):
        writer.add(trace(number))
    assert store.counts == {"dropped_queue_full": 2}
    store.freed.set()
    writer.close()
    assert choices(store) == [0, 1, 2, 3]
