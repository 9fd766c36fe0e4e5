"""The trace store: exact round trips, older shards, damaged ones, retention, and writers killed at any point."""

from __future__ import annotations

import hashlib
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from core.sampling.params import SamplingParams
from core.traces.store import UNREADABLE, Proposals, Trace, TraceStore, parquet_of, traces_of
from tests.core.bundle.bundles import killed_writers

PARAMS = SamplingParams(seed=7, max_tokens=64)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SOME = st.floats(0, 2)
IDS = st.lists(st.integers(0, (1 << 31) - 1), max_size=8).map(tuple)
NAME = st.text(st.characters(codec="utf-8"))
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
    task=st.none() | NAME,
    adapter=st.none() | NAME,
    proposed=COUNT,
    accepted=COUNT,
    target_passes=COUNT,
    prior=st.none() | st.dictionaries(NAME, SOME, max_size=3),
    bundle=st.none() | NAME,
    sources=st.none() | st.dictionaries(NAME, st.builds(Proposals, st.integers(0, 9), st.integers(0, 9)), max_size=3),
    first_token_s=st.none() | SOME,
    total_s=st.none() | SOME,
    ended_at=st.none() | SOME,
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
    assert row["params"].keys() == {field.name for field in msgspec.structs.fields(SamplingParams)} - {"grammar"}
    assert row["params"]["seed"] == 7


def test_shards_of_before_the_newer_columns_are_read(tmp_path: Path) -> None:
    newer = ("prior", "bundle", "sources", "first_token_s", "total_s", "ended_at")
    table = parquet.read_table(pa.BufferReader(parquet_of([trace(0), trace(1)]))).drop_columns(newer)
    parquet.write_table(table, tmp_path / "old")
    content = (tmp_path / "old").read_bytes()
    name = f"{1:020d}-2-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    (tmp_path / "old").rename(tmp_path / name)
    store = TraceStore(tmp_path)
    store.append([msgspec.structs.replace(trace(2), prior={"math": 1.0}, sources={"draft": Proposals(3, 2)})])
    assert choices(store) == [0, 1, 2]
    assert store.counts == {"written": 1}


def test_a_shard_of_many_traces_is_converted_in_parts_and_read_whole() -> None:
    many = [trace(number) for number in range(40)]
    content = parquet_of(many)
    assert traces_of(content) == many
    assert parquet_of(many) == content


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


def aged(shard: Path, days: float) -> None:
    written = time.time() - days * 86400
    os.utime(shard, (written, written))


def test_what_is_too_old_goes_though_nothing_is_written(tmp_path: Path) -> None:
    store = TraceStore(tmp_path, max_days=30)
    for number in range(4):
        store.append([trace(number)] * (number + 1))
    first, second, third, _ = store.shards()
    aged(first, 31)
    aged(second, 29)
    aged(third, 40)
    third.rename(third.with_name(third.name + UNREADABLE))
    (tmp_path / "notes.txt").write_bytes(b"mine")
    aged(tmp_path / "notes.txt", 99)
    store.prune()
    assert choices(store) == [1, 1, 3, 3, 3, 3]
    assert store.counts == {"written": 10, "dropped_expired": 1 + 3}
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".parquet", ".parquet", ".txt"]


def test_a_clock_that_was_set_back_deletes_nothing_and_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TraceStore(tmp_path, max_days=30)
    store.append([trace(0)])
    now = time.time()
    for number, back in enumerate((0, 400 * 86400, 2 * 86400), start=1):
        monkeypatch.setattr(time, "time", lambda back=back: now - back)
        monkeypatch.setattr(time, "time_ns", lambda back=back: int((now - back) * 1e9))
        store.append([trace(number)])
    assert choices(store) == [0, 1, 2, 3]
    small = TraceStore(tmp_path, max_bytes=sum(shard.stat().st_size for shard in store.shards()[1:]))
    small.prune()
    assert choices(store) == [1, 2, 3]


def test_writers_that_make_room_at_once_do_no_harm(tmp_path: Path) -> None:
    unbounded = TraceStore(tmp_path / "one")
    unbounded.append([trace(0)])
    bound = 5 * written(unbounded)
    stores = [TraceStore(tmp_path / "shared", max_bytes=bound) for _ in range(2)]

    def write(store: TraceStore) -> None:
        for number in range(60):
            store.append([trace(number)])

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, stores))
    stores[0].append([trace(99)])
    assert written(stores[0]) <= bound
    assert choices(stores[0])[-1] == 99
    counts = stores[0].counts + stores[1].counts
    assert counts == {"written": 121, "dropped_oldest": 121 - len(stores[0].shards())}


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


# ---- kills


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
