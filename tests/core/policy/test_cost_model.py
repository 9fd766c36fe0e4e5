"""What passes cost: the sizes in between, bad moments, a pace that changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.base import Rows
from core.policy.cost_model import PassCosts, profile
from tests.core.toy import Clock, ToyModel


def test_what_a_pass_costs_lies_between_the_sizes_measured() -> None:
    measured = PassCosts()
    measured.observe(1, 0.010)
    measured.observe(5, 0.014)
    assert [measured.seconds(rows) for rows in (1, 4, 5)] == pytest.approx([0.010, 0.013, 0.014])


def test_more_rows_than_were_ever_measured_go_on_as_the_upper_half_of_those_that_were() -> None:
    measured = PassCosts()
    for rows, seconds in ((1, 0.010), (16, 0.010), (32, 0.012), (64, 0.020)):
        measured.observe(rows, seconds)
    assert [measured.seconds(rows) for rows in (96, 256)] == pytest.approx([0.028, 0.068])


def test_one_pass_in_a_bad_moment_is_not_believed_for_ever() -> None:
    measured = PassCosts()
    measured.observe(1, 0.5)
    measured.observe(7, 0.5)
    for _ in range(40):
        measured.observe(6, 0.012)
    assert measured.seconds(1) == pytest.approx(0.012)  # never more than a larger pass
    assert measured.seconds(7) == pytest.approx(0.014)  # never more than in proportion to a smaller one


@given(st.lists(st.tuples(st.integers(1, 300), st.floats(1e-4, 1.0)), min_size=1, max_size=30), st.integers(1, 300))
def test_more_rows_never_cost_less_nor_more_than_in_proportion(passes: list[tuple[int, float]], rows: int) -> None:
    measured = PassCosts()
    for size, seconds in passes:
        measured.observe(size, seconds)
    fewer, more = measured.seconds(rows), measured.seconds(rows + 1)
    assert 0.0 < fewer <= more * (1 + 1e-9)
    assert measured.seconds(2 * rows) <= 2 * fewer * (1 + 1 / 8)


def test_a_machine_that_slows_down_slows_passes_of_every_size() -> None:
    measured = PassCosts()
    for size in (1, 4, 8):
        measured.observe(size, 0.010 + 0.001 * size)
    for _ in range(100):
        measured.observe(4, 2 * 0.014)
    assert [measured.seconds(rows) for rows in (1, 4, 8)] == pytest.approx([0.022, 0.028, 0.036], rel=0.2)


def test_one_interrupted_pass_hardly_counts() -> None:
    measured = PassCosts()
    for rows in (1, 2, 4, 8, 16, 32):
        measured.observe(rows, 0.010)
    measured.observe(8, 5.0)
    assert measured.seconds(8) < 0.012
    assert measured.seconds(1) < 0.012


def test_a_profile_knows_every_small_size_and_leaves_nothing() -> None:
    model, clock = ToyModel(), Clock()
    turns: Counter[int] = Counter()

    def take_time(batch: Sequence[Rows]) -> None:
        [rows] = batch
        turns[len(rows.tokens)] += 1
        clock.now += (0.010 + 0.001 * len(rows.tokens)) * (3 if turns[len(rows.tokens)] == 1 else 1)

    model.on_forward = take_time
    measured = PassCosts()
    profile(model, clock, measured)
    assert [measured.seconds(rows) for rows in (1, 5, 16, 17, 64)] == pytest.approx([0.011, 0.015, 0.026, 0.027, 0.074])
    assert (model.cached, model.num_used_pages) == ({}, 0)


def test_passes_beside_drafts_cost_what_was_seen_beside_as_many() -> None:
    costs = PassCosts()
    for rows in (1, 2, 4, 8, 16):
        costs.observe(rows, 0.010)
    for _ in range(100):
        costs.observe(8, 0.010)
        costs.observe(8, 0.013, num_drafting=8)
    assert costs.seconds(8) == pytest.approx(0.010, rel=0.06)
    assert costs.seconds(8, 8) == costs.seconds(8, 15) == pytest.approx(0.013, rel=0.06)
    assert costs.seconds(8, 4) == costs.seconds(8)


def test_drafts_never_seem_to_make_a_pass_quicker() -> None:
    costs = PassCosts()
    costs.observe(1, 0.010)
    for _ in range(50):
        costs.observe(1, 0.008, num_drafting=1)
    assert costs.seconds(1, 1) == costs.seconds(1) == pytest.approx(0.010, rel=0.25)


def test_a_cost_of_drafting_that_is_not_seen_any_more_is_forgotten() -> None:
    costs = PassCosts()
    costs.observe(1, 0.010)
    for _ in range(50):
        costs.observe(1, 0.010)
        costs.observe(1, 0.013, num_drafting=1)
    before = costs.seconds(1, 1) - costs.seconds(1)
    for _ in range(100):
        costs.forget(0.97)
    assert costs.seconds(1, 1) - costs.seconds(1) < 0.1 * before


def test_a_cost_of_drafting_that_is_seen_is_not_forgotten() -> None:
    costs = PassCosts()
    costs.observe(1, 0.010)
    for _ in range(400):
        costs.observe(1, 0.013, num_drafting=1)
        costs.forget(0.97)
    assert costs.seconds(1, 1) == pytest.approx(0.013)
    assert costs.seconds(1) < 0.0115  # of what drafts do to a pass, little counts as what its rows cost


def test_a_first_pass_of_a_size_that_was_interrupted_hardly_counts() -> None:
    costs = PassCosts()
    for rows in (1, 8, 64):
        costs.observe(rows, 0.010)
    for rows in (4, 80):  # between what is known, and beyond
        costs.observe(rows, 6.0)
        for _ in range(20):
            costs.observe(rows, 0.010)
    assert costs.seconds(8) == pytest.approx(0.010, rel=0.2)
    assert costs.seconds(80) < 0.0125  # what it would be in proportion
