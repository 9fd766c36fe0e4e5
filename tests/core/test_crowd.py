"""How many sessions there are at a time, of late."""

from __future__ import annotations

import pytest

from core.asking import LEARNING
from core.crowd import MEMORY, Crowd
from core.verify_engine import VerifyConfig
from tests.core.toy import PROMPT, plain_tokens, request
from tests.core.verify_bench import Bench


def test_what_was_fades_when_it_is_over() -> None:
    crowd = Crowd()
    crowd.observe(32, 0.0)
    assert crowd.most(50 * MEMORY) == 32.0
    crowd.observe(0, 50 * MEMORY)
    assert crowd.most(51 * MEMORY) == pytest.approx(32 / 2.718, rel=0.01)
    assert crowd.most(100 * MEMORY) == pytest.approx(0.0)


def test_the_first_of_a_wave_is_not_judged_by_the_lull_before_it() -> None:
    crowd, now = Crowd(), 0.0
    for _ in range(5):
        for number in [*range(1, 17), *range(15, -1, -1)]:
            now += 0.01 * MEMORY
            crowd.observe(number, now)
    crowd.observe(1, now)
    assert 13.0 < crowd.most(now) < 16.0


def test_there_are_never_fewer_than_there_are() -> None:
    crowd = Crowd()
    for number in (3, 1, 7, 2):
        crowd.observe(number, 0.0)
        assert crowd.most(0.0) >= number
    assert crowd.most(0.0) == 7.0
    crowd.observe(2, 1.0)
    assert crowd.most(100 * MEMORY) == 2.0


def test_a_draft_is_judged_by_the_sessions_there_have_been_though_the_new_one_is_the_first() -> None:
    """One that pays for one session, whose rows are free, but not for eight, whose rows are not."""
    bench = Bench(VerifyConfig(num_speculative_tokens=4))
    for rows in range(1, 65):
        bench.engine.costs.observe(rows, 0.010 if rows <= 8 else 0.00125 * rows)
    answer = plain_tokens(request(200))
    [number] = bench.engine.open([request(200)])
    bench.step()
    for _ in range(2 * LEARNING):  # all that it guesses is right
        known = len(bench.tokens(number))
        bench.propose(number, len(PROMPT) + known, answer[known : known + 1])
        bench.step()
    assert list(bench.engine.wanted().values()) == [True]
    others = [bench.engine.open([request(9)])[0] for _ in range(16)]
    assert list(bench.engine.wanted().values()) == [False]
    bench.clock.now += 10 * MEMORY
    for other in others:
        bench.engine.close(other)
    assert list(bench.engine.wanted().values()) == [False]
    bench.clock.now += 10 * MEMORY
    assert list(bench.engine.wanted().values()) == [True]
