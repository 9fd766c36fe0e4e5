"""How many sessions there are at a time, of late."""

from __future__ import annotations

import pytest

from core.asking import LEARNING
from core.crowd import MEMORY, Crowd
from core.verify_engine import VerifyConfig
from tests.core.toy import PROMPT, plain_tokens, request
from tests.core.verify_bench import Bench


def test_what_was_fades_while_nothing_changes() -> None:
    crowd = Crowd()
    crowd.observe(32, 0.0)
    assert crowd.mean(0.0) == 0.0
    assert crowd.mean(50 * MEMORY) == pytest.approx(32.0)
    crowd.observe(0, 50 * MEMORY)
    assert crowd.mean(51 * MEMORY) == pytest.approx(32 / 2.718, rel=0.01)
    assert crowd.mean(100 * MEMORY) == pytest.approx(0.0)


def test_a_number_that_holds_only_for_a_moment_counts_for_little() -> None:
    crowd = Crowd()
    crowd.observe(8, 0.0)
    crowd.observe(0, 10 * MEMORY)
    crowd.observe(8, 10.01 * MEMORY)
    assert crowd.mean(10.01 * MEMORY) == pytest.approx(8.0, rel=0.02)


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
    assert bench.engine.others_wanted()
    others = [bench.engine.open([request(9)])[0] for _ in range(16)]
    assert list(bench.engine.wanted().values()) == [False]
    assert not bench.engine.others_wanted()  # one that nobody has met would be as good as drafts mostly are
    bench.clock.now += 10 * MEMORY
    for other in others:
        bench.engine.close(other)
    assert list(bench.engine.wanted().values()) == [False]
    bench.clock.now += 10 * MEMORY
    assert list(bench.engine.wanted().values()) == [True]
