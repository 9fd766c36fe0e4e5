"""Whether drafts are welcome among the sessions there are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core.company import FIRST_PAUSE, LONGEST_PAUSE, MEMORY, Company
from core.model.base import Rows
from core.verify_engine import VerifyConfig
from tests.core.toy import PROMPT, plain_tokens, request
from tests.core.verify_bench import Bench

SESSIONS = 10  # as many as 8 to 11


def passes_until_unwelcome(company: Company) -> int:
    """None of which asks for anything."""
    passes = 0
    while company.welcome(SESSIONS) and passes < 20 * MEMORY:
        company.observe(SESSIONS, asked=False)
        passes += 1
    return passes


def sessions_until_welcome(company: Company) -> int:
    sessions = 0
    while not company.welcome(SESSIONS):
        company.joined(SESSIONS, 1)
        sessions += 1
    return sessions


def test_drafts_are_welcome_while_passes_ask_them() -> None:
    company = Company()
    for turn in range(int(20 * MEMORY)):
        company.observe(SESSIONS, asked=turn % 3 > 0)
        assert company.welcome(SESSIONS)


def test_drafts_that_no_pass_asks_are_soon_not_welcome_among_as_many() -> None:
    company = Company()
    assert passes_until_unwelcome(company) < MEMORY
    welcome = [sessions for sessions in range(1, 33) if company.welcome(sessions)]
    assert welcome == [sessions for sessions in range(1, 33) if not 8 <= sessions < 12]


def test_a_lone_sessions_draft_is_always_welcome() -> None:
    company = Company()
    for _ in range(int(20 * MEMORY)):
        company.observe(1, asked=False)
    assert company.welcome(1)


def test_they_are_tried_again_ever_more_rarely_and_a_trial_is_judged_by_new_sessions() -> None:
    company = Company()
    pauses = []
    for _ in range(5):
        passes_until_unwelcome(company)
        pauses.append(sessions_until_welcome(company) // SESSIONS)
        for _ in range(int(20 * MEMORY)):
            company.observe(SESSIONS, asked=False)
        assert company.welcome(SESSIONS), "most of the sessions began before the trial"
        company.joined(SESSIONS, SESSIONS)
    assert pauses == [FIRST_PAUSE, 128, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_after_a_trial_that_held_the_next_comes_as_soon_as_the_first() -> None:
    company = Company()
    for _ in range(4):
        passes_until_unwelcome(company)
        sessions_until_welcome(company)
        company.joined(SESSIONS, SESSIONS)
    for _ in range(int(3 * MEMORY)):
        company.observe(SESSIONS, asked=True)
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
    for _ in range(16 * FIRST_PAUSE):
        bench.engine.close(bench.engine.open([request(9)])[0])
    assert bench.engine.wanted() == {"math": True}
