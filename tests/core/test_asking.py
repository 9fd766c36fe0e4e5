"""What is asked of a draft: the rule, and what becomes of drafts that guess well or badly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.asking import (
    BESIDE_OTHERS,
    EXPLORE,
    FIRST_PAUSE,
    LEARNING,
    LONGEST_PAUSE,
    SPARED,
    Ask,
    Probe,
    Prospect,
    Sparing,
    best_ask,
    pays,
    would_pay,
)
from core.draft_engine import DraftConfig, DraftEngine
from core.estimator import Expected
from core.messages import Commit
from core.model.base import Rows
from core.reply import Reply
from core.step_costs import StepCosts
from core.verify_engine import VerifyConfig
from tests.core.pair import opened
from tests.core.simulation import PASS, VERIFIER, PartlyRight, Simulation
from tests.core.toy import PROMPT, VOCAB_SIZE, Clock, ToyModel, plain_tokens, request
from tests.core.verify_bench import Bench

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
    clearly = 1.0 + BESIDE_OTHERS * (1.0 - 1.0 / sessions)
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


def test_a_draft_that_is_right_but_pays_for_no_batch_like_this_is_looked_at_now_and_then() -> None:
    probe, looked = Probe(), 0
    for _ in range(10 * FIRST_PAUSE):
        probe.next_pass()
        if probe.ask(Ask(4, 0.3), 8, together=False).most:
            looked += 1
            probe.right()
    assert looked == 10


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


def test_of_many_sessions_the_first_has_a_draft_that_is_not_wanted() -> None:
    sparing = Sparing()
    spared = [(sparing.spares("a", wanted=False), sparing.spares("b", wanted=False))[0] for _ in range(3 * SPARED + 3)]
    assert spared == [False, *SPARED * [True]] * 3


def test_the_first_session_since_a_draft_was_wanted_has_it() -> None:
    sparing = Sparing()
    spared = [sparing.spares("a", wanted=wanted) for wanted in (False, False, True, True, False, False)]
    assert spared == [False, True, False, False, False, True]


# ---- in the engine


def test_a_useless_draft_is_soon_asked_for_next_to_nothing() -> None:
    simulation = Simulation()
    asked = request(400, temperature=0.0)  # with dice of its own even a wrong draft would often guess right
    number = simulation.generate(asked)
    simulation.join(simulation.draft(PASS / 20, ToyModel(salt=1)), number, asked)
    simulation.run()
    proposed = [run.proposed for run in simulation.target.runs[number]]
    assert sum(proposed[50:]) / len(proposed[50:]) < 0.1
    assert list(simulation.target.engine.wanted().values()) == [False]
    assert tuple(t for run in simulation.target.runs[number] for t in run.tokens) == plain_tokens(asked)


def test_a_good_draft_is_asked_for_all_it_may_bring() -> None:
    simulation = Simulation()
    asked = request(300)
    number = simulation.generate(asked)
    simulation.join(simulation.draft(PASS / 50), number, asked)
    simulation.run()
    proposed = [run.proposed for run in simulation.target.runs[number]]
    assert sorted(proposed)[len(proposed) // 2] == VerifyConfig().num_speculative_tokens


def test_a_draft_whose_answers_were_only_read_after_passes_is_waited_for_once() -> None:
    """Its reply is taken for half a pass; judged by that, eight sessions would not ask it for a token again."""
    bench = Bench(VerifyConfig(num_speculative_tokens=1))
    for rows in (1, 8, 16, 64):
        bench.engine.costs.observe(rows, PASS)

    def take_time(_: Sequence[Rows]) -> None:
        bench.clock.now += PASS

    bench.model.on_forward = take_time
    answer = plain_tokens(request(60))
    numbers = [bench.engine.open([request(60)])[0] for _ in range(8)]
    bench.step()
    for number in numbers:
        bench.propose(number, len(PROMPT) + 1, ())
    bench.step()  # they are asked
    bench.step()
    for number in numbers:
        bench.propose(number, len(PROMPT) + 2, ((answer[2] + 1) % VOCAB_SIZE,))
    asked: list[int] = []
    for _ in range(3 * FIRST_PAUSE):
        bench.step()
        asked = [m.session for _, m in bench.engine.outgoing() if isinstance(m, Commit) and m.wanted != 0]
        if len(asked) == 1:
            break
    assert len(asked) == 1
    assert (bench.engine.wait() or 0.0) > 0.0


def test_where_rows_are_dear_many_sessions_go_without_proposals_and_the_last_one_has_them_again() -> None:
    simulation = Simulation()

    def dear_by_the_row(batch: Sequence[Rows]) -> None:
        simulation.clock.now += PASS * (0.6 + 0.05 * sum(len(rows.tokens) for rows in batch))

    simulation.target.model.on_forward = dear_by_the_row
    lengths = [400] + 15 * [150]
    numbers = [simulation.generate(request(length)) for length in lengths]
    draft = simulation.draft(PASS / 50, PartlyRight(3))
    for number, length in zip(numbers, lengths, strict=True):
        simulation.join(draft, number, request(length))
    wanted = []
    while len(simulation.target.runs[numbers[0]]) < 140:
        simulation.turn()
        wanted.append(all(simulation.target.engine.wanted().values()))
    simulation.run()
    proposed = [run.proposed for run in simulation.target.runs[numbers[0]]]
    assert sum(proposed[40:140]) <= 0.2 * 100
    assert not wanted[-1]
    assert sum(proposed[-40:]) >= 2 * 40
    assert tuple(t for run in simulation.target.runs[numbers[0]] for t in run.tokens) == plain_tokens(request(400))


def test_a_draft_that_gets_better_is_asked_again() -> None:
    simulation = Simulation()
    asked = request(900, temperature=0.0)
    number = simulation.generate(asked)
    model = ToyModel(salt=1)
    simulation.join(simulation.draft(PASS / 20, model), number, asked)
    while len(simulation.target.runs[number]) < 200:
        simulation.turn()
    model._salt = 0
    simulation.run()
    proposed = [run.proposed for run in simulation.target.runs[number]]
    assert sum(proposed[150:200]) < 10
    assert sum(proposed[-10:]) >= 30
    assert list(simulation.target.engine.wanted().values()) == [True]


def test_what_is_wanted_reaches_the_draft_and_bounds_the_pass() -> None:
    bench = Bench()

    def dear_from_the_third_row(batch: Sequence[Rows]) -> None:
        bench.clock.now += 1.0 if sum(len(rows.tokens) for rows in batch) <= 2 else 1.5

    bench.model.on_forward = dear_from_the_third_row
    [number] = bench.engine.open([request(60)])
    bench.step()
    bench.step()  # a plain pass
    answer = plain_tokens(request(60))
    wanted: list[int | None] = []
    while len(bench.tokens(number)) < 50:  # the first guess is right, the others never are
        known = len(bench.tokens(number))
        wrong = (answer[known + 1] + 1) % VOCAB_SIZE
        bench.propose(number, len(PROMPT) + known, (answer[known], wrong, wrong, wrong))
        bench.step()
        wanted += [message.wanted for _, message in bench.engine.outgoing() if isinstance(message, Commit)]
    assert Counter(wanted[LEARNING:]).most_common(1)[0][0] == 1
    assert Counter(run.proposed for run in bench.runs[number][LEARNING:]).most_common(1)[0][0] == 1
    assert max(run.proposed for run in bench.runs[number]) == 4


def useless(bench: Bench) -> None:
    """Show the engine a draft that is always wrong, where every row costs a second."""

    def dear_by_the_row(batch: Sequence[Rows]) -> None:
        bench.clock.now += sum(len(rows.tokens) for rows in batch)

    bench.model.on_forward = dear_by_the_row
    answer = plain_tokens(request(60))
    [number] = bench.engine.open([request(60)])
    bench.step()
    while len(bench.tokens(number)) < 60:
        known = len(bench.tokens(number))
        bench.propose(number, len(PROMPT) + known, ((answer[known] + 1) % VOCAB_SIZE,) * 4)
        bench.step()


def passes_until_unwanted(sessions: int) -> int:
    """Of a draft that is always wrong, with so many sessions in every pass, where a row costs a millisecond."""
    bench = Bench()

    def dear_by_the_row(batch: Sequence[Rows]) -> None:
        bench.clock.now += 0.001 * sum(len(rows.tokens) for rows in batch)

    bench.model.on_forward = dear_by_the_row
    answer = plain_tokens(request(200))
    numbers = [bench.engine.open([request(200)])[0] for _ in range(sessions)]
    bench.step()
    bench.step()  # a plain pass
    passes = 0
    while all(bench.engine.wanted().values()):
        for number in numbers:
            known = len(bench.tokens(number))
            bench.propose(number, len(PROMPT) + known, ((answer[known] + 1) % VOCAB_SIZE,) * 4)
        bench.step()
        passes += 1
    return passes


def first_wish(bench: Bench) -> tuple[int, int | None]:
    """A new session, and what its draft is asked for at its first word."""
    [number] = bench.engine.open([request(60)])
    bench.step()
    bench.engine.outgoing()
    bench.propose(number, len(PROMPT), ())
    [(_, message)] = bench.engine.outgoing()
    assert isinstance(message, Commit)
    return number, message.wanted


def test_a_draft_that_does_not_pay_is_asked_for_nothing_at_its_first_word() -> None:
    bench = Bench()
    assert first_wish(bench)[1] is None  # all there may be
    useless(bench)
    assert first_wish(bench)[1] == 0


def test_the_word_of_a_draft_that_was_asked_for_nothing_measures_no_reply() -> None:
    bench = Bench()
    useless(bench)
    number, _ = first_wish(bench)
    seats = bench.engine._seats
    reply = seats._replies.of(b"math#1")
    before = [reply.mean(tokens) for tokens in range(5)]
    seats.waited = True  # for another session's draft, when the word comes, long after
    bench.clock.now += 0.7
    bench.propose(number, len(PROMPT) + 1, ())
    assert [reply.mean(tokens) for tokens in range(5)] == before


def test_a_draft_of_which_nothing_is_wanted_is_left_alone_until_something_is() -> None:
    simulation = Simulation()
    asked = request(900)
    number = simulation.generate(asked)
    draft = simulation.draft(PASS / 3, ToyModel(salt=1))
    simulation.join(draft, number, asked)
    simulation.run()
    runs = simulation.target.runs[number]
    asks = sum(run.proposed > 0 for run in runs)
    assert len(runs) > 850
    assert 10 < asks < draft.engine.counts["rounds"] < 3 * asks


def test_no_cost_of_drafting_makes_it_slower_than_plain() -> None:
    """No cliff: whatever a draft's cost, the chosen lengths are as quick as plain decoding, give or take 3 %."""
    for cost in (PASS / 50, PASS / 8, PASS / 2):
        simulation = Simulation()
        asked = request(300)
        number = simulation.generate(asked)
        simulation.join(simulation.draft(cost, PartlyRight(3)), number, asked)
        simulation.run()
        plain = Simulation()
        plain.generate(asked)
        plain.run()
        assert simulation.target.passes[-1][1] < 1.03 * plain.target.passes[-1][1]


def test_a_hostile_wish_is_dropped_by_the_draft() -> None:
    engine = DraftEngine(ToyModel(), VOCAB_SIZE, DraftConfig(), Clock())
    engine.open(opened(request(40)), VERIFIER)
    engine.receive(VERIFIER, Commit(1, len(PROMPT), (), -1))
    assert engine.counts["dropped_bad_commit"] == 1
    engine.receive(VERIFIER, Commit(1, len(PROMPT), (7,), 10**9))
    while engine.drafting:
        engine.step()
    [(_, proposal)] = engine.outgoing()
    assert len(proposal.tokens) == 4
