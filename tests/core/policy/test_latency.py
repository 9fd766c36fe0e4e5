"""The latency of a draft process, by the number of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.policy.latency import TRIP, DraftLatency, Smoothed


def after(*proposals: tuple[int, float], trip: float = 0.001, times: int = 50) -> DraftLatency:
    """Proposals of (tokens, drafting seconds), each waited for, over and over."""
    latency = DraftLatency()
    for _ in range(times):
        for tokens, drafting in proposals:
            latency.observe(tokens, drafting, drafting + trip)
    return latency


def test_a_latency_is_a_trip_and_a_time_per_token() -> None:
    latency = after((4, 0.005), (1, 0.002), (6, 0.007))
    assert [latency.expected(tokens) for tokens in (0, 3, 10)] == pytest.approx([0.002, 0.005, 0.012], rel=0.1)
    assert latency.per_token == pytest.approx(0.001, rel=0.1)
    assert latency.latest(3) >= latency.expected(3)


def test_nothing_is_expected_of_a_draft_that_never_proposed() -> None:
    latency = DraftLatency()
    latency.observe_branch_hit()
    assert not latency.known
    assert (latency.expected(4), latency.mean(4, lookahead=True), latency.per_token) == (0.0, 0.0, 0.0)


def test_drafting_time_is_known_where_no_pass_waited() -> None:
    latency = DraftLatency()
    for _ in range(50):
        latency.observe(4, 0.010, None)
    assert latency.expected(4) == pytest.approx(TRIP + 0.010, rel=0.1)


def test_a_wait_without_a_reported_time_counts_as_drafting() -> None:
    latency = DraftLatency()
    for _ in range(50):
        latency.observe(4, None, 0.010)
    assert latency.expected(4) == pytest.approx(0.010, rel=0.1)


def test_branch_hits_shorten_the_mean_and_not_what_a_miss_is_expected_to_take() -> None:
    latency = after((4, 0.005))
    before = latency.expected(4)
    for _ in range(200):
        latency.observe_branch_hit()
    assert latency.mean(4, lookahead=True) < 0.06 * before
    assert latency.expected(4) == before
    assert latency.mean(4, lookahead=False) == pytest.approx(before, rel=0.2)


def test_a_draft_that_is_busy_drafting_ahead_answers_later_and_one_that_is_not_does_not() -> None:
    latency = after((4, 0.005), trip=0.0002)
    assert latency.expected(4, lookahead=True) == latency.expected(4)  # until it is known
    for _ in range(100):
        latency.observe(4, 0.005, 0.013, lookahead=True)
    assert latency.expected(4, lookahead=True) == pytest.approx(0.013, rel=0.1)
    assert latency.expected(4) == pytest.approx(0.0052, rel=0.1)
    assert latency.mean(4, lookahead=False) < latency.mean(4, lookahead=True) < latency.latest(4, lookahead=True)


def test_a_trip_of_the_other_kind_is_expected_until_one_of_this_kind_was_seen() -> None:
    latency = DraftLatency()
    for _ in range(100):
        latency.observe(4, 0.002, 0.012, lookahead=True)
    assert latency.expected(4) == pytest.approx(latency.expected(4, lookahead=True)) == pytest.approx(0.012, rel=0.1)
    assert latency.mean(4, lookahead=False) < 0.3 * latency.expected(4)  # so it is tried
    latency.observe(4, 0.002, 0.0025)
    assert latency.expected(4) < 0.3 * latency.expected(4, lookahead=True)


def test_a_draft_that_was_slow_long_ago_seems_quick_to_plans() -> None:
    latency = after((4, 0.5))
    for _ in range(200):
        latency.forget(0.97)
    assert latency.mean(4, lookahead=True) < 0.02
    for _ in range(4):
        latency.observe(4, 0.5, None)
    assert latency.mean(4, lookahead=True) > 0.2


def test_a_trip_that_was_long_once_is_forgotten() -> None:
    latency = after((4, 0.001), trip=0.200)
    assert latency.expected(4) > 0.150
    for _ in range(2400):
        latency.forget(0.97)
    assert latency.expected(4) < 0.003
    assert latency.latest(4) < 0.006


def test_one_slow_start_is_doubted() -> None:
    latency = DraftLatency()
    latency.observe(4, 0.5, None)
    assert latency.mean(4, lookahead=True) < 0.3 * latency.expected(4)


proposals = st.tuples(st.integers(0, 16), st.none() | st.floats(0.0, 10.0), st.none() | st.floats(0.0, 10.0))


@given(st.lists(proposals, max_size=60), st.integers(0, 16))
def test_no_latency_is_negative(seen: list[tuple[int, float | None, float | None]], tokens: int) -> None:
    latency = DraftLatency()
    for length, drafting, waited in seen:
        latency.observe(length, drafting, waited)
    assert 0.0 <= latency.mean(tokens, lookahead=False) <= latency.expected(tokens) <= latency.latest(tokens)


@given(st.lists(st.floats(0.0, 1e3), min_size=1, max_size=50))
def test_a_smoothed_duration_stays_within_those_seen(durations: list[float]) -> None:
    smoothed = Smoothed(durations[0])
    for duration in durations:
        smoothed.observe(duration)
    assert min(durations) - 1e-9 <= smoothed.mean <= max(durations) + 1e-9
