"""How long a draft takes to answer, by the number of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.reply import EARLIER, Reply


def test_a_reply_has_a_fixed_part_and_one_per_token() -> None:
    reply = Reply()
    for tokens in (4, 1, 6, 2, 5):
        reply.observe(tokens, 0.002 + 0.001 * tokens)
    assert [reply.mean(tokens) for tokens in (0, 3, 10)] == pytest.approx([0.002, 0.005, 0.012])
    assert reply.each == pytest.approx(0.001)
    assert reply.latest(3) >= reply.mean(3)


def test_a_reply_of_one_length_leaves_the_rest_to_proportion() -> None:
    reply = Reply()
    for _ in range(10):
        reply.observe(4, 0.005)
    assert [reply.mean(tokens) for tokens in (0, 4, 9)] == pytest.approx([0.001, 0.005, 0.010])


def test_one_longer_answer_in_sixteen_is_enough_to_tell_what_a_token_costs() -> None:
    reply = Reply()
    for _ in range(3):
        for tokens in [3] + [1] * 15:
            reply.observe(tokens, 0.003 * tokens)
        assert reply.mean(3) == pytest.approx(0.009)


def test_a_token_takes_what_it_took_when_answers_told() -> None:
    reply = Reply()
    for tokens in (4, 1, 6, 2, 5, *[1] * 200):
        reply.observe(tokens, 0.002 + 0.001 * tokens)
    assert reply.mean(5) == pytest.approx(0.007)
    for _ in range(200):
        reply.observe(1, 0.0005)
    assert reply.mean(5) < 0.0026, "no token takes more than an answer of one"


def test_answers_to_earlier_sessions_count_little() -> None:
    reply = Reply()
    for seconds in (0.008, 0.002):
        reply.begin_session()
        for _ in range(int(EARLIER)):
            reply.observe(1, seconds)
    assert reply.mean(1) == pytest.approx(0.005, rel=0.05)


def test_an_answer_that_was_not_timed_makes_a_guess_that_the_first_timed_one_replaces() -> None:
    reply = Reply()
    for seconds in (0.020, 0.014, 0.030):
        reply.observe_at_most(1, seconds)
    assert reply.known
    assert reply.mean(1) == pytest.approx(0.007)
    reply.observe(1, 0.003)
    assert reply.mean(1) == pytest.approx(0.003)


def test_of_answers_that_were_not_timed_only_those_quicker_than_expected_count_beside_timed_ones() -> None:
    reply = Reply()
    for _ in range(20):
        reply.observe(4, 0.005)
    reply.observe_at_most(4, 0.014)
    assert reply.mean(4) == pytest.approx(0.005)
    reply.observe_at_most(4, 0.003)
    assert 0.003 < reply.mean(4) < 0.005


@given(st.lists(st.tuples(st.integers(0, 16), st.floats(0.0, 10.0)), min_size=1, max_size=60), st.integers(0, 16))
def test_a_reply_never_takes_less_than_nothing(answers: list[tuple[int, float]], tokens: int) -> None:
    reply = Reply()
    for length, seconds in answers:
        reply.observe(length, seconds)
    assert reply.mean(tokens) >= -1e-9
    assert reply.deviation >= 0.0


def test_a_first_answer_that_came_late_is_not_held_against_a_draft() -> None:
    late, other = Reply(), Reply()
    late.observe(4, 0.3)
    for reply in (late, other):
        reply.observe(4, 0.002)
    assert (late.mean(4), late.latest(4)) == (other.mean(4), other.latest(4))
    late.observe(4, 0.0005)  # as other first answers, this one may have been late
    late.observe(4, 0.0006)
    late.observe(4, 0.0001)  # no longer one answer that stands alone
    assert late.mean(4) > 0.0003


def test_foreseen_answers_make_the_mean_quicker_and_not_those_that_are_waited_for() -> None:
    reply = Reply()
    reply.observe_foreseen()
    assert not reply.known
    reply.observe(4, 0.005)
    reply.observe_foreseen()
    assert reply.mean(4) == 0.005, "all that is known is one answer"
    for tokens in (4, 2, 3):
        reply.observe(tokens, 0.001 + 0.001 * tokens)
    for _ in range(200):
        reply.observe_foreseen()
    assert reply.mean(4) < 0.001
    assert reply.each < 0.0002
    assert reply.unforeseen(4) == pytest.approx(0.005)
    assert reply.latest(4) == pytest.approx(0.005, rel=0.05)
