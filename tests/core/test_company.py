"""Whether drafts are welcome among the sessions there are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core.company import FIRST_PAUSE, LONGEST_PAUSE, MEMORY, Cohort, Company
from core.model.base import Rows
from core.verify_engine import VerifyConfig
from tests.core.toy import PROMPT, plain_tokens, request
from tests.core.verify_bench import Bench

SESSIONS = 8  # to 11 are of one size


def come(company: Company, sessions: int) -> list[Cohort]:
    """So many at a time."""
    return [company.joined(sessions) for _ in range(sessions)]


def passes_until_unwelcome(company: Company) -> int:
    """None of which asks for anything, all over new sessions."""
    passes, members = 0, come(company, SESSIONS)
    while company.welcome(SESSIONS) and passes < 20 * MEMORY:
        company.observe(members, SESSIONS, asked=False)
        passes += 1
    return passes


def sessions_until_welcome(company: Company) -> int:
    sessions = 0
    while not company.welcome(SESSIONS):
        company.joined(SESSIONS)
        sessions += 1
    return sessions


def test_drafts_are_welcome_while_passes_ask_them() -> None:
    company = Company()
    members = come(company, SESSIONS)
    for turn in range(int(20 * MEMORY)):
        company.observe(members, SESSIONS, asked=turn % 3 > 0)
        assert company.welcome(SESSIONS)


def test_drafts_that_no_pass_asks_are_soon_not_welcome_among_as_many() -> None:
    company = Company()
    assert passes_until_unwelcome(company) < MEMORY
    welcome = [sessions for sessions in range(1, 33) if company.welcome(sessions)]
    assert welcome == [sessions for sessions in range(1, 33) if not 8 <= sessions < 12]


def test_a_lone_sessions_draft_is_always_welcome() -> None:
    company = Company()
    for _ in range(int(20 * MEMORY)):
        company.observe(come(company, 1), 1, asked=False)
    assert company.welcome(1)


def test_the_last_of_many_sessions_tell_nothing_of_few() -> None:
    """Of those that came as many, few have a draft: that passes over them ask for nothing is no wonder."""
    company = Company()
    members = come(company, 32)
    for left in range(32, 0, -1):
        for _ in range(int(MEMORY)):
            company.observe(members[:left], left, asked=False)
    assert [company.welcome(sessions) for sessions in (2, 4, 8, 16, 32)] == [True, True, True, True, False]


def test_a_pass_over_sessions_some_of_which_came_earlier_tells_less_of_the_others() -> None:
    whole, half = Company(), Company()
    members = {company: come(company, SESSIONS) for company in (whole, half)}
    passes = dict.fromkeys(members, 0)
    for company, number in ((whole, SESSIONS), (half, SESSIONS // 2)):
        while company.welcome(SESSIONS):
            company.observe([None] * (SESSIONS - number) + members[company][:number], SESSIONS, asked=False)
            passes[company] += 1
    assert passes[half] == pytest.approx(2 * passes[whole], rel=0.1)


def test_they_are_tried_again_ever_more_rarely_and_a_trial_is_judged_by_new_sessions() -> None:
    company = Company()
    pauses, earlier = [], come(company, SESSIONS)
    for _ in range(5):
        passes_until_unwelcome(company)
        pauses.append(sessions_until_welcome(company) // SESSIONS)
        for _ in range(int(20 * MEMORY)):
            company.observe(earlier, SESSIONS, asked=False)
        assert company.welcome(SESSIONS), "these sessions came before the trial"
    assert pauses == [FIRST_PAUSE, 128, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_after_a_trial_that_held_the_next_comes_as_soon_as_the_first() -> None:
    company = Company()
    for _ in range(4):
        passes_until_unwelcome(company)
        sessions_until_welcome(company)
    members = come(company, SESSIONS)
    for _ in range(int(3 * MEMORY)):
        company.observe(members, SESSIONS, asked=True)
    passes_until_unwelcome(company)
    assert sessions_until_welcome(company) == FIRST_PAUSE * SESSIONS


@pytest.mark.parametrize(("drafted", "wanted"), [(16, True), (2, False)])
def test_a_draft_that_pays_for_all_sessions_but_not_for_a_few_of_them(drafted: int, wanted: bool) -> None:
    """Rows are free and it is always right, but waiting for it takes half a pass, of all sessions."""
    bench = Bench(VerifyConfig(num_speculative_tokens=1))
    for rows in (1, 16, 64):
        bench.engine.costs.observe(rows, 0.010)

    def take_time(_: Sequence[Rows]) -> None:
        bench.clock.now += 0.010

    bench.model.on_forward = take_time
    answer = plain_tokens(request(400))
    before = [bench.engine.open([request(400)])[0] for _ in range(16)]
    bench.clock.now += 60.0
    for number in before:
        bench.engine.close(number)
    numbers = [bench.engine.open([request(400)])[0] for _ in range(16)]
    bench.step()
    for _ in range(100):
        bench.engine.wait()
        bench.clock.now += 0.005
        for number in numbers[:drafted]:
            known = len(bench.tokens(number))
            bench.propose(number, len(PROMPT) + known, answer[known : known + 1])
        bench.step()
    assert bench.engine.wanted() == {"math": wanted}
    assert bench.engine.others_wanted() == wanted
    for _ in range(16 * FIRST_PAUSE):
        bench.engine.close(bench.engine.open([request(9)])[0])
    assert bench.engine.wanted() == {"math": True}
    assert bench.engine.others_wanted()
