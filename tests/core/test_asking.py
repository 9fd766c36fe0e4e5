"""What is asked of a draft, and which drafts are opened: the rules by themselves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.asking import (
    BESIDE_OTHERS,
    BETWEEN_SCOUTS,
    CLEARLY,
    EXPLORE,
    FIRST_PAUSE,
    LEARNING,
    LONGEST_PAUSE,
    Ask,
    Probe,
    Prospect,
    Scouts,
    best_ask,
    pays,
    would_pay,
)
from core.estimator import Expected
from core.reply import Reply
from core.step_costs import StepCosts

MOST = 6
ALONE = Prospect()


def replies(fixed: float, each: float) -> Reply:
    reply = Reply()
    for tokens in (4, 1, 6, 2, 5):
        reply.observe(tokens, fixed + each * tokens)
    return reply


def costs(fixed: float, each: float) -> StepCosts:
    measured = StepCosts()
    for rows in range(1, 65):
        measured.observe(rows, fixed + each * rows)
    return measured


def expected(acceptance: float, most: int = MOST) -> list[Expected]:
    """Of a draft that proposes all it is asked for, each token right as often as told if those before it were."""
    return [Expected(sum(acceptance**power for power in range(asked + 1)), asked) for asked in range(most + 1)]


# ---- the rule


def test_rows_for_nothing_are_all_asked_for() -> None:
    assert best_ask(expected(0.3), replies(0.0, 0.0), ALONE, costs(1.0, 0.0)) == Ask(MOST, 0.0)


def test_before_any_pass_was_measured_all_are_asked_for() -> None:
    assert best_ask(expected(0.1), Reply(), ALONE, StepCosts()) == Ask(MOST, 0.0)


def test_a_draft_that_is_never_right_is_asked_for_nothing() -> None:
    assert best_ask(expected(0.0), replies(0.001, 0.001), ALONE, costs(1.0, 0.01)) == Ask(0)


def test_a_draft_slower_than_the_target_is_asked_for_nothing() -> None:
    assert best_ask(expected(0.7), replies(0.0, 1.1), ALONE, costs(1.0, 0.0)) == Ask(0)


def test_the_better_the_draft_the_more_is_asked_of_it() -> None:
    asks = [best_ask(expected(a / 20), replies(0.02, 0.05), ALONE, costs(1.0, 0.05)).most for a in range(21)]
    assert asks == sorted(asks)
    assert (asks[0], asks[-1]) == (0, MOST)


def test_the_dearer_a_token_the_more_it_must_promise() -> None:
    worths = [
        best_ask(expected(0.7), replies(0.02, each), ALONE, costs(1.0, 0.05)).worth for each in (0.0, 0.01, 0.02, 0.05)
    ]
    assert worths == sorted(worths)
    assert worths[0] < worths[-1] < 1.0


def test_a_full_batch_asks_for_less_than_a_lone_session() -> None:
    dear_rows = costs(0.2, 0.1)
    asks = [
        best_ask(expected(0.6), replies(0.0, 0.001), Prospect(1.0 * others, others, 0.0), dear_rows)
        for others in (0, 2, 8, 32)
    ]
    assert [ask.most for ask in asks] == sorted([ask.most for ask in asks], reverse=True)
    assert asks[0].most > asks[-1].most


def test_waiting_that_others_wait_for_anyway_is_free() -> None:
    slow = replies(0.0, 0.5)
    assert best_ask(expected(0.5), slow, Prospect(1.0, 1, 0.0), costs(1.0, 0.0)).most == 0
    assert best_ask(expected(0.5), slow, Prospect(3.0, 5, 3.0, 1), costs(1.0, 0.0)).most == MOST


@given(st.floats(0.05, 0.98), st.floats(0.0, 0.2), st.floats(0.0, 0.1), st.floats(0.1, 1.0), st.floats(0.0, 0.1))
def test_a_chain_that_ends_where_it_is_not_worth_it_has_the_best_rate(
    acceptance: float, fixed: float, each: float, step: float, row: float
) -> None:
    """Of a draft whose tokens are all as likely right, the best length is known: where the ask ends its chain."""
    reply, measured = replies(fixed, each), costs(step, row)
    outcomes = expected(acceptance, 12)

    def rate(length: int) -> float:
        wait = reply.mean(length) if length else 0.0
        return outcomes[length].tokens / (wait + measured.seconds(1 + length))

    ask = best_ask(outcomes, reply, ALONE, measured)
    length = sum(acceptance**index >= ask.worth for index in range(1, ask.most + 1))
    assert rate(length) >= 0.99 * max(map(rate, range(13)))


# ---- all sessions together


@pytest.mark.parametrize("sessions", [1, 4])
def test_a_plan_must_be_better_than_no_proposals_the_clearer_the_more_sessions(sessions: int) -> None:
    even = 1.5 * sessions  # tokens, where a pass takes a second and drafts half of one
    clearly = 1.0 + CLEARLY + BESIDE_OTHERS * (1.0 - 1.0 / sessions)
    answers = [
        pays(Prospect(times * clearly * even, 12, 0.5, sessions), sessions, costs(1.0, 0.0)) for times in (0.99, 1.01)
    ]
    assert answers == [False, True]


def test_before_any_pass_was_measured_all_plans_pay() -> None:
    assert pays(Prospect(), 4, StepCosts())


def test_a_draft_that_pays_for_one_session_does_not_where_rows_are_many_and_dear() -> None:
    dear_rows = costs(1.0, 0.05)
    paying = [would_pay(expected(0.6), replies(0.05, 0.01), sessions, dear_rows) for sessions in (1, 2, 32)]
    assert paying == [True, True, False]


def test_a_draft_that_is_slow_to_answer_pays_for_many_sessions_that_wait_together() -> None:
    assert not would_pay(expected(0.6), replies(2.0, 0.0), 1, costs(1.0, 0.01))
    assert would_pay(expected(0.6), replies(0.2, 0.0), 16, costs(1.0, 0.01))


def test_a_useless_draft_would_never_pay() -> None:
    assert not any(would_pay(expected(0.0), Reply(), sessions, costs(1.0, 0.0)) for sessions in (1, 8, 32))


# ---- looking again


def looks(probe: Probe, passes: int) -> list[int]:
    """What a draft that does not pay is asked for in so many passes of one session."""
    asked = []
    for _ in range(passes):
        probe.next_pass()
        asked.append(probe.ask(Ask(0), 8).most)
    return asked


def test_probes_of_a_draft_that_does_not_pay_become_rare() -> None:
    probe = Probe()
    assert probe.ask(Ask(5, 0.3), 8) == Ask(8, 0.3)
    asked = looks(probe, 1000)
    assert sum(asked[:50]) <= 2
    assert 0 < sum(asked[300:]) <= 700 / LONGEST_PAUSE + 1
    probe.right()
    assert looks(probe, 3) == [1, 0, 0]


def test_a_session_whose_draft_does_not_pay_begins_with_a_look_and_with_others_soon_after() -> None:
    probe = Probe()
    looks(probe, 1000)
    probe.begin_session()
    asked = looks(probe, 100)
    assert [number for number, most in enumerate(asked) if most] == [0, 2, 6, 14, 30, 62]


def test_probes_of_a_draft_that_is_right_but_does_not_pay_in_such_a_batch_become_rare_too() -> None:
    probe, looked = Probe(), []
    for number in range(10 * LONGEST_PAUSE):
        probe.next_pass()
        if probe.ask(Ask(4, 0.3), 8, together=False).most:
            looked.append(number)
            probe.right()
    assert looked[1] - looked[0] == 2 * FIRST_PAUSE
    assert looked[-1] - looked[-2] == LONGEST_PAUSE


def test_however_many_sessions_a_pass_has_one_of_them_looks() -> None:
    probe = Probe()
    looks(probe, 1000)
    asked = 0
    for _ in range(10 * LONGEST_PAUSE):
        probe.next_pass()
        asked += sum(probe.ask(Ask(0), 8).most for _ in range(16))
    assert asked == 10


def test_at_first_and_now_and_then_all_is_asked_for() -> None:
    probe = Probe()
    asked = Counter(probe.ask(Ask(5, 0.3), 8) for _ in range(10 * EXPLORE))
    assert asked == {Ask(8, 0.3): LEARNING + 10, Ask(5, 0.3): 10 * EXPLORE - LEARNING - 10}


def test_the_first_session_and_one_in_many_passes_after_it_has_a_draft_that_is_not_wanted() -> None:
    scouts, sent = Scouts(), []
    for now in range(3 * BETWEEN_SCOUTS):
        sent += [now for _ in range(16) if scouts.send()]
        scouts.next_pass()
    assert sent == [0, BETWEEN_SCOUTS, 2 * BETWEEN_SCOUTS]
