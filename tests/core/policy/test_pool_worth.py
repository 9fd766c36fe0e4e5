"""A pool pays whose sessions are asked for tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.policy.pool_worth import ENOUGH, TOO_LITTLE, pays, replicas
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
