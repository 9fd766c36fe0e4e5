"""Plans by themselves: what is best of drafts good and bad, quick and slow, of one session and of many."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.draft_key import DraftKey
from core.policy.acceptance import AcceptanceEstimate, Expected, band
from core.policy.draft_policy import CLEARLY, FORGET_PASSES, OTHERS, DraftBudget, DraftedSessions, DraftPolicy
from core.policy.latency import DraftLatency
from core.sampling.params import GREEDY_BELOW

PASS = 0.010
LIMIT = 6


class Accepted(AcceptanceEstimate):
    """Every token with the same probability, if those before it were."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self._probability = probability

    def expected(self, most: int) -> list[Expected]:
        tokens = [1.0]
        for number in range(1, most + 1):
            tokens.append(tokens[-1] + self._probability**number)
        return [Expected(each, float(asked)) for asked, each in enumerate(tokens)]


def latency(trip: float, per_token: float) -> DraftLatency:
    made = DraftLatency()
    for tokens in 200 * (1, 3, 5):
        drafting = per_token * (tokens + 1)
        made.observe(tokens, drafting, trip + drafting, lookahead=True)
    return made


def policy(per_row: float = 0.0, contention: float = 0.0) -> DraftPolicy:
    """Passes of a centisecond, and so much more for each further row, or for drafts beside it."""
    made = DraftPolicy()
    for rows in (1, 2, 4, 8, 16, 32, 64, 128):
        made.costs.observe(rows, PASS * (1 + per_row * (rows - 1)))
    for _ in range(100 if contention else 0):
        made.costs.observe(1, PASS)
        made.costs.observe(1, PASS * (1 + contention), num_drafting=1)
    return made


def group(probability: float, sessions: float = 1, trip: float = 0.0002, per_token: float = 0.0001) -> DraftedSessions:
    return DraftedSessions(Accepted(probability), latency(trip, per_token), LIMIT, sessions)


def rate(made: DraftPolicy, one: DraftedSessions, length: int, *, lookahead: bool = True) -> float:
    tokens, proposed = one.acceptance.expected(length)[length]
    wait = one.latency.mean(proposed, lookahead=lookahead) if length else 0.0
    rows, drafting = one.num_sessions * (1 + proposed), one.num_sessions if length and lookahead else 0
    return one.num_sessions * tokens / (wait + made.costs.seconds(rows, drafting))


@given(
    st.floats(0.0, 1.0), st.floats(0.0, 0.3), st.sampled_from([1, 2, 7, 16]), st.floats(0.0, 0.02), st.floats(0.0, 0.5)
)
def test_a_lone_group_gets_the_length_of_the_best_goodput(
    probability: float, per_row: float, sessions: int, per_token: float, contention: float
) -> None:
    made, one = policy(per_row, contention), group(probability, sessions, per_token=per_token)
    [budget] = made.plan([one], sessions)
    best = max(
        rate(made, one, length, lookahead=lookahead) for length in range(LIMIT + 1) for lookahead in (True, False)
    )
    if best > CLEARLY * rate(made, one, 0):
        assert rate(made, one, budget.num_tokens, lookahead=budget.lookahead) == pytest.approx(best)
    else:
        assert budget == DraftBudget(0)
    assert 0.0 <= budget.min_survival <= 1.0


def test_a_good_draft_is_asked_for_all_and_a_useless_one_for_nothing() -> None:
    made = policy(per_row=0.02)
    assert made.plan([group(0.95)], 1)[0].num_tokens == LIMIT
    assert made.plan([group(0.02)], 1)[0].num_tokens == 0


def test_dearer_rows_and_slower_drafts_are_asked_for_less() -> None:
    lengths = [policy(per_row).plan([group(0.6)], 1)[0].num_tokens for per_row in (0.01, 0.1, 0.3, 1.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1] == 0
    slower = [policy().plan([group(0.6, per_token=each)], 1)[0].num_tokens for each in (0.0001, 0.001, 0.003, 0.02)]
    assert slower == sorted(slower, reverse=True)
    assert slower[0] > slower[-1] == 0


def foreseeing(per_token: float, hits: float) -> DraftedSessions:
    """A draft that drafts ahead, whose branches are the answer so often."""
    made = latency(0.0002, per_token)
    for number in range(2000):
        if number * hits % 1.0 < hits:
            made.observe_branch_hit()
        else:
            made.observe(3, 4 * per_token, None, lookahead=True)
    return DraftedSessions(Accepted(0.8), made, LIMIT, 1)


def test_a_draft_drafts_ahead_where_that_saves_more_than_it_slows_the_target_down() -> None:
    assert policy(contention=0.0).plan([foreseeing(0.0005, 0.7)], 1)[0].lookahead
    assert policy(contention=0.1).plan([foreseeing(0.0005, 0.7)], 1)[0].lookahead
    for dear in (
        policy(contention=0.6).plan([foreseeing(0.0005, 0.7)], 1),
        policy(contention=0.1).plan([group(0.8)], 1),
    ):
        assert dear[0].num_tokens
        assert not dear[0].lookahead


def test_a_good_draft_whose_proposals_once_travelled_long_is_asked_again() -> None:
    made = policy()
    draft = made.estimates(DraftKey("math"), b"math#1", 0.0)
    for _ in range(100):
        draft.acceptance.observe(LIMIT, LIMIT, LIMIT)
        draft.latency.observe(LIMIT, PASS / 50, 20 * PASS)
    group_of_one = [DraftedSessions(draft.acceptance, draft.latency, LIMIT, 1)]
    assert not made.plan(group_of_one, 1)[0].num_tokens
    for _ in range(40 * FORGET_PASSES):
        made.observe_pass(1)
    assert made.plan(group_of_one, 1)[0].num_tokens


def test_no_draft_drafts_ahead_where_no_core_is_left_for_it() -> None:
    made = policy(contention=0.0)
    made.lookahead = False
    for one in (foreseeing(0.0005, 0.7), group(0.95), group(0.02)):
        assert not made.plan([one], 1)[0].lookahead
    assert made.plan([group(0.95)], 1)[0].num_tokens == LIMIT
    assert made.unplanned(3) == DraftBudget(3, lookahead=False)
    before_any_pass = DraftPolicy()
    before_any_pass.lookahead = False
    assert before_any_pass.plan([group(0.1)], 1) == [DraftBudget(LIMIT, lookahead=False)]


def test_a_good_draft_and_a_useless_one_in_one_batch_are_told_apart() -> None:
    good, useless = policy(per_row=0.02).plan([group(0.9, 4), group(0.02, 4)], 8)
    assert good.num_tokens
    assert not useless.num_tokens


def test_one_draft_among_many_sessions_without_any_must_pay_for_their_wait() -> None:
    slow = group(0.8, per_token=0.0015)
    assert policy().plan([slow], 1)[0].num_tokens
    assert not policy().plan([slow], 64)[0].num_tokens


def test_min_survival_is_what_one_more_token_must_be_worth() -> None:
    survivals = [policy(per_row).plan([group(0.9)], 1)[0].min_survival for per_row in (0.0, 0.02, 0.1)]
    assert survivals == sorted(survivals)
    assert 0.0 < survivals[0] < survivals[-1] < 1.0


def test_before_a_pass_was_measured_every_row_seems_free() -> None:
    assert DraftPolicy().plan([group(0.1)], 1) == [DraftBudget(LIMIT)]
    assert DraftPolicy().declined(1, LIMIT, 1.0) == {OTHERS: False}


def test_nothing_is_planned_for_no_drafts() -> None:
    assert policy().plan([], 5) == []


# ---- which drafts new sessions go without


def met(made: DraftPolicy, task: str, accepted: int, passes: int = 200) -> None:
    """A draft that is asked for six tokens, proposes them, and has so many accepted."""
    estimates = made.estimates(DraftKey(task), task.encode(), 1.0)
    for _ in range(passes):
        estimates.acceptance.observe(LIMIT, LIMIT, accepted)
        estimates.latency.observe(LIMIT, 0.0005, 0.0007)


def test_the_drafts_that_pay_are_told_from_those_that_do_not() -> None:
    made = policy(per_row=0.02)
    met(made, "useless", 0)
    met(made, "good", 4)
    assert made.declined(1, LIMIT, 1.0) == {DraftKey("useless"): True, DraftKey("good"): False, OTHERS: False}


def sixteen_rows_for_one() -> DraftPolicy:
    """Up to sixteen rows cost as much as one, more of them in proportion."""
    made = DraftPolicy()
    for rows in (1, 16, 32, 64, 128, 256):
        made.costs.observe(rows, PASS * max(1.0, rows / 16))
    met(made, "good", 4)
    return made


def test_among_so_many_sessions_that_none_would_pay_all_are_declined() -> None:
    made = sixteen_rows_for_one()
    assert not made.declined(1, LIMIT, 1.0)[DraftKey("good")]
    assert all(made.declined(32, LIMIT, 1.0).values())


def test_sessions_to_come_are_expected_to_run_beside_as_many_as_of_late() -> None:
    made = sixteen_rows_for_one()
    for _ in range(200):
        made.observe_pass(32)
    assert made.declined(1, LIMIT, 1.0)[DraftKey("good")]
    for _ in range(200):
        made.observe_pass(1)
    assert not made.declined(1, LIMIT, 1.0)[DraftKey("good")]


def test_the_draft_that_joined_last_is_listed_last_and_the_oldest_are_forgotten() -> None:
    made = policy()
    for number in range(300):
        made.estimates(DraftKey(f"{number}"), b"", 1.0)
    made.estimates(DraftKey("270"), b"", 1.0)
    listed = list(made.declined(1, LIMIT, 1.0))
    assert (listed[-2:], len(listed)) == ([DraftKey("270"), OTHERS], 65)


# ---- exploration


def passes_that_ask(count: int, *, right: bool) -> list[int]:
    """The passes of so many that ask a draft, known to be useless, which from now on is always right or never."""
    made = policy(per_row=0.02)
    met(made, "known", 0)
    estimates = made.estimates(DraftKey("known"), b"known", 1.0)
    sessions = DraftedSessions(estimates.acceptance, estimates.latency, LIMIT, 1)
    asked = []
    for number in range(count):
        made.observe_pass(1)
        if length := made.plan([sessions], 1)[0].num_tokens:
            asked.append(number)
            estimates.acceptance.observe(length, length, length if right else 0)
            estimates.latency.observe(length, 0.0005, 0.0007)
    return asked


def test_a_useless_draft_is_asked_again_once_its_estimate_has_faded_and_ever_as_rarely() -> None:
    asked = passes_that_ask(20 * FORGET_PASSES, right=False)
    settled = [number for number in asked if number > 10 * FORGET_PASSES]
    assert 0 < len(settled) < 10 * FORGET_PASSES / 16


def test_a_draft_that_gets_better_is_asked_in_every_pass_soon_after_it_is_asked_again() -> None:
    asked = passes_that_ask(10 * FORGET_PASSES, right=True)
    assert asked[0] < 5 * FORGET_PASSES
    assert len(asked) > 0.9 * (10 * FORGET_PASSES - asked[0])


# ---- tokens that are there already


def goodput(made: DraftPolicy, chances: list[float], running: int) -> float:
    return (running + sum(chances)) / made.costs.seconds(running + len(chances))


@given(
    st.lists(st.floats(0.01, 1.0), max_size=20),
    st.integers(1, 16),
    st.floats(0.0, 1.0),
)
def test_as_many_tokens_are_worth_their_rows_as_give_the_best_goodput(
    chances: list[float], running: int, per_row: float
) -> None:
    made = policy(per_row=per_row)
    least = made.least_chance(chances, running)
    worth = [chance for chance in chances if chance >= least]
    ranked = sorted(chances, reverse=True)
    best = max(goodput(made, ranked[:number], running) for number in range(len(ranked) + 1))
    nothing = goodput(made, [], running)
    assert goodput(made, worth, running) == pytest.approx(best if best > CLEARLY * nothing else nothing)


def test_before_a_pass_was_measured_every_row_is_free() -> None:
    assert DraftPolicy().least_chance([0.01], 1) == 0.0


def test_a_token_is_not_worth_a_row_that_costs_as_much_as_a_pass() -> None:
    assert policy(per_row=1.0).least_chance([0.9, 0.5], 1) > 1.0
    assert policy(per_row=0.2).least_chance([0.9, 0.5, 0.1], 1) == 0.5


def test_a_draft_that_guesses_greedy_answers_alone_is_declined_for_hot_ones_alone() -> None:
    made, key = policy(per_row=0.1), DraftKey("math")
    for temperature, accepted in ((0.0, 4), (1.0, 0)):
        estimates = made.estimates(key, b"math#1", temperature)
        for _ in range(100):
            estimates.acceptance.observe(4, 4, accepted)
    declined = [made.declined(1, LIMIT, temperature)[key] for temperature in (0.0, 0.9, 2.0)]
    assert declined == [False, True, True]
    assert key not in made.declined(1, LIMIT, 0.7)  # it was not met there


def test_many_drafts_asked_at_all_temperatures_are_all_remembered() -> None:
    made, drafts = policy(), [DraftKey(f"{number}") for number in range(24)]
    for key, temperature in product(drafts, (0.0, 0.7, 1.0)):
        made.estimates(key, b"", temperature)
    assert all(list(made.declined(1, LIMIT, temperature)) == [*drafts, OTHERS] for temperature in (0.0, 0.7, 1.0))


def test_what_the_sampler_takes_as_greedy_is_judged_as_such() -> None:
    assert {band(temperature) for temperature in (0.0, GREEDY_BELOW / 2)} == {0}
    assert band(2 * GREEDY_BELOW) == 1
