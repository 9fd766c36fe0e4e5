"""A pool pays whose sessions are asked for tokens; one that does not, and may have no replicas, is spared sessions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.policy.pool_worth import ENOUGH, TOO_LITTLE, TRY_AGAIN, SparedPool, pays, replicas
from tests.examples import examples

SESSIONS = st.floats(0.01, 1e4)
SHARES = st.floats(0.0, 1.0)


@settings(max_examples=examples(200))
@given(sessions=SESSIONS, share=SHARES, paid=st.booleans())
def test_what_is_asked_decides_and_between_the_thresholds_what_was_before(
    sessions: float, share: float, paid: bool
) -> None:
    found = pays(share * sessions, sessions, paid=paid)
    assert found or share <= ENOUGH * 1.001
    assert not found or share >= TOO_LITTLE * 0.999
    if 1.001 * TOO_LITTLE < share < 0.999 * ENOUGH:
        assert found == paid


@pytest.mark.parametrize("paid", [True, False])
def test_without_sessions_nothing_is_learned(paid: bool) -> None:
    assert pays(0.0, 0.0, paid=paid) == paid


@settings(max_examples=examples(200))
@given(few=SESSIONS, more=SESSIONS, per_replica=st.floats(0.5, 100.0), worth=st.booleans())
def test_more_sessions_never_take_fewer_replicas(few: float, more: float, per_replica: float, worth: bool) -> None:
    few, more = sorted((few, more))
    assert replicas(few, per_replica, worth=worth) <= replicas(more, per_replica, worth=worth)
    assert replicas(more, per_replica, worth=False) == 0.0


def spared(pool: SparedPool, declines: Sequence[bool], now: float = 0.0) -> list[bool]:
    return [pool.spares(now, declined=declined) for declined in declines]


def test_a_pool_whose_draft_is_always_declined_is_spared_and_tried_again_after_a_while() -> None:
    pool = SparedPool()
    assert spared(pool, [True] * 9) == [True] * 9
    assert spared(pool, [False] * 50) == [True] * 50, "an estimate that has only faded starts a replica"
    assert spared(pool, [False], TRY_AGAIN + 1.0) == [False]
    assert spared(pool, [True] * 20 + [False], TRY_AGAIN + 1.0) == [True] * 21


def test_a_pool_that_pays_is_not_spared_for_some_declines() -> None:
    pool = SparedPool()
    assert spared(pool, [False] * 100 + [True] * 30 + [False]) == [False] * 100 + [True] * 30 + [False]


@settings(max_examples=examples(100))
@given(declines=st.lists(st.booleans(), min_size=1, max_size=300))
def test_what_a_verifier_declines_is_never_tried_and_one_start_in_four_keeps_a_pool(declines: list[bool]) -> None:
    found = spared(SparedPool(), declines)
    assert all(spares for spares, declined in zip(found, declines, strict=True) if declined)
    assert spared(SparedPool(), [number % 4 != 0 for number in range(len(declines))])[::4] == [False] * len(found[::4])
