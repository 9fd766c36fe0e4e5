"""What a draft has brought so far tells what it will."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.policy.acceptance import (
    GUESSES,
    MEMORY,
    MOST_SUPPORT,
    PRIOR_ACCEPTANCE,
    AcceptanceEstimate,
    Kind,
    TokenChances,
)


def test_an_unknown_adapter_has_the_prior() -> None:
    none, one, two = AcceptanceEstimate().expected(2)
    assert none == (1.0, 0.0)
    assert one == pytest.approx((1 + PRIOR_ACCEPTANCE, 1.0))
    assert two == pytest.approx((1 + PRIOR_ACCEPTANCE + PRIOR_ACCEPTANCE**2, 2.0))


def test_tokens_that_were_not_asked_for_tell_nothing() -> None:
    acceptance = AcceptanceEstimate()
    before = acceptance.expected(4)
    for _ in range(50):
        acceptance.observe(2, 2, 0)
    after = acceptance.expected(4)
    assert after[2].tokens < 1.2 < before[2].tokens
    assert after[4].tokens - after[2].tokens == pytest.approx(before[4].tokens - before[2].tokens)


def test_chains_that_end_early_take_few_rows() -> None:
    acceptance = AcceptanceEstimate()
    for number in range(1000):
        length = 8 if number % 2 else 1
        acceptance.observe(8, length, length)
    tokens, proposed = acceptance.expected(8)[-1]
    assert (tokens, proposed) == pytest.approx((5.5, 4.5), rel=0.05)
    assert acceptance.tokens(8) == pytest.approx(9.0, rel=0.05)


@given(st.lists(st.tuples(st.integers(0, 16), st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=300))
def test_expectations_are_possible(passes: list[tuple[int, float, float]]) -> None:
    acceptance = AcceptanceEstimate()
    for asked, share, right in passes:
        proposed = int(share * asked)
        acceptance.observe(asked, proposed, int(right * proposed))
    for asked, (tokens, proposed_tokens) in enumerate(acceptance.expected(16)):
        assert 1.0 <= tokens <= 1.0 + proposed_tokens + 1e-9 <= 1.0 + asked + 1e-6


def test_what_a_draft_did_long_ago_is_forgotten() -> None:
    acceptance = AcceptanceEstimate()
    for _ in range(2000):
        acceptance.observe(1, 1, 0)
    for _ in range(3 * int(MEMORY)):
        acceptance.observe(1, 1, 1)
    assert acceptance.expected(1)[1].tokens > 1.94


def test_what_is_not_renewed_fades_to_the_optimistic_prior() -> None:
    acceptance = AcceptanceEstimate()
    for _ in range(300):
        acceptance.observe(1, 1, 0)
    assert acceptance.expected(1)[1].tokens < 1.02
    for _ in range(300):
        acceptance.forget(0.97)
    assert acceptance.expected(1)[1].tokens > 1.0 + 0.9 * PRIOR_ACCEPTANCE
    acceptance.observe(1, 1, 0)
    assert acceptance.expected(1)[1].tokens < 1.5


# ---- guesses token by token


def test_more_support_is_more_chance_before_anything_was_counted() -> None:
    priors = [TokenChances().of(Kind(2, support)) for support in range(MOST_SUPPORT)]
    assert priors == sorted(set(priors))
    assert priors[0] > 0.0
    assert priors[-1] < 1.0


def test_guesses_of_one_kind_tell_nothing_of_another() -> None:
    chances = TokenChances()
    before = chances.of(Kind(3, 2))
    for number in range(2000):
        chances.observe(Kind(2, 2), right=number % 4 == 0)
    assert chances.of(Kind(2, 2)) == pytest.approx(0.25, abs=0.02)
    assert chances.of(Kind(3, 2)) == before


@given(st.lists(st.booleans(), max_size=100), st.integers(0, MOST_SUPPORT - 1))
def test_a_chance_is_a_probability(guesses: list[bool], support: int) -> None:
    chances = TokenChances()
    for right in guesses:
        chances.observe(Kind(2, support), right=right)
    assert 0.0 < chances.of(Kind(2, support)) < 1.0


def test_what_was_right_long_ago_is_forgotten() -> None:
    chances = TokenChances()
    for right in [False] * 3000 + [True] * 3 * int(GUESSES):
        chances.observe(Kind(2, 2), right=right)
    assert chances.of(Kind(2, 2)) > 0.94
