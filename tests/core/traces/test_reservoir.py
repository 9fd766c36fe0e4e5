"""A client's answers in a window are bounded, and each is as likely to be kept as any other."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.traces import reservoir as reservoir_module
from core.traces.reservoir import TraceReservoir
from core.traces.store import Trace, TraceStore
from core.traces.writer import TraceWriter
from tests.core.traces.test_store import choices, trace
from tests.core.traces.test_writer import Clock

OWNERS = (None, "a", "b", "c")
SECONDS = 60.0
events = st.lists(st.sampled_from(OWNERS) | st.just("the window ends"), max_size=120)


def drained(reservoir: TraceReservoir) -> list[Trace]:
    found = list[Trace]()
    while some := reservoir.take():
        found += some
    return found


@given(events, st.integers(1, 5), st.integers(1, 30), st.integers(0, 99))
def test_each_client_has_so_many_of_a_window_or_all_if_there_are_fewer(
    happened: list[str | None], per_owner: int, most: int, seed: int
) -> None:
    """As far as there is room, which clients who come first take."""
    reservoir = TraceReservoir(per_owner, SECONDS, most, rng=Random(seed))
    asked, room, dropped = Counter[str | None](), Counter[str | None](), Counter[str | None]()
    owners = dict[int, str | None]()
    for number, owner in enumerate([*happened, "the window ends"]):
        if owner == "the window ends":
            kept = drained(reservoir)
            assert Counter(owners[one.choice] for one in kept) == room
            assert len({one.choice for one in kept}) == len(kept)
            assert room.total() + dropped.total() == asked.total()
            owners, asked, room, dropped = {}, Counter(), Counter(), Counter()
            continue
        owners[number] = owner
        asked[owner] += 1
        reason = reservoir.add(trace(number), owner)
        if room[owner] == per_owner:
            assert reason == "dropped_over_key"
        else:
            assert reason == ("dropped_queue_full" if room.total() == most else None)
        room[owner] += reason is None
        dropped[owner] += reason is not None
        assert max(room.values()) <= per_owner


def test_each_answer_of_a_client_is_as_likely_to_be_kept() -> None:
    """Of 12 answers 3: each is kept in 4,000 windows 1,000 times, with a standard deviation of 27."""
    rng, times = Random(1), Counter[int]()
    for _ in range(4000):
        reservoir = TraceReservoir(3, rng=rng)
        for number in range(12):
            reservoir.add(trace(number, 1), "a")
        times.update(one.choice for one in reservoir.take())
    assert times.total() == 12_000
    assert all(abs(times[number] - 1000) < 5 * 27.4 for number in range(12))


def test_clients_without_a_key_count_as_one() -> None:
    reservoir = TraceReservoir(2)
    for number in range(9):
        reservoir.add(trace(number))
    assert len(reservoir.take()) == 2


def test_neighbours_in_a_file_are_not_of_one_client() -> None:
    reservoir = TraceReservoir(50, rng=Random(0))
    for number in range(100):
        reservoir.add(trace(number), "a" if number < 50 else "b")
    halves = [one.choice // 50 for one in reservoir.take()]
    alike = sum(one == other for one, other in pairwise(halves))
    assert 30 < alike < 70  # 98 if they were not mixed


def test_a_window_begins_with_an_answer_and_ends_by_time_alone() -> None:
    clock = Clock()
    reservoir = TraceReservoir(2, SECONDS, clock=clock)
    assert reservoir.due_in() == math.inf
    for number in range(5):
        reservoir.add(trace(number), f"client {number}")
    clock.now += 45
    reservoir.add(trace(5), "client 5")
    assert reservoir.due_in() == 15
    clock.now += 20
    assert reservoir.due_in() == 0
    assert sorted(one.choice for one in reservoir.take()) == list(range(6))
    assert reservoir.due_in() == math.inf
    reservoir.add(trace(6), "client 5")
    assert reservoir.due_in() == SECONDS


def test_a_large_window_becomes_several_files_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservoir_module, "SHARD_TOKENS", 100)
    reservoir = TraceReservoir(5, SECONDS)
    for number in range(5):
        reservoir.add(trace(number), "a")  # of 40 tokens
    assert len(reservoir.take()) == 3
    assert reservoir.due_in() == 0
    assert reservoir.add(trace(9), "a") is None  # of the next window
    assert len(reservoir.take()) == 2
    assert 0 < reservoir.due_in() <= SECONDS


def test_a_writer_writes_what_is_kept_when_it_is_closed_and_counts_the_rest(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    writer = TraceWriter(store, TraceReservoir(3))
    for number in range(10):
        writer.add(trace(number), "a")
    writer.add(trace(10), "b")
    writer.close()
    assert len(choices(store)) == 4
    assert 10 in choices(store)
    assert store.counts == {"written": 4, "shards": 1, "dropped_over_key": 7}


def test_tokens_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservoir_module, "QUEUE_TOKENS", 100)
    reservoir = TraceReservoir(9)
    assert [reservoir.add(trace(number), "a") for number in range(4)] == [None, None, None, "dropped_queue_full"]
    reservoir.take()
    assert reservoir.add(trace(4), "a") is None
