"""The policy on recorded rounds: what it must never lose, and what it must gain."""

from __future__ import annotations

import pytest

from tests.bench.policy import KINDS, judge, load


@pytest.mark.parametrize("streams", [1, 4, pytest.param(16, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_draft_makes_it_slower_than_plain(kind: str, streams: int) -> None:
    ours, _, _ = judge(load(), kind, streams)
    assert ours > 0.97


@pytest.mark.parametrize(("kind", "streams"), [("task", 1), ("task", 4), ("general", 1)])
def test_drafts_that_pay_bring_nearly_what_the_best_fixed_length_does(kind: str, streams: int) -> None:
    ours, fixed, proposed = judge(load(), kind, streams)
    assert fixed > 1.1
    assert ours > 0.9 * fixed
    assert proposed > 1.0


def test_a_useless_draft_is_hardly_asked() -> None:
    _, _, proposed = judge(load(), "useless", 4)
    assert proposed < 0.2
