"""What is asked of a draft: the rule, what it reads, and what becomes of a draft that guesses badly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.asking import EXPLORE, LONGEST_PAUSE, Ask, Probe, Prospect, best_ask
from core.confidence import EDGES, Confidence
from core.draft_engine import DraftConfig, DraftEngine
from core.draft_session import DraftSession, Guess
from core.estimator import MEMORY, PRIOR_ACCEPTANCE, Acceptance, Expected
from core.messages import Commit
from core.model.base import Rows
from core.reply import Reply
from core.step_costs import StepCosts
from core.verify_engine import VerifyConfig
from tests.core.simulation import PASS, VERIFIER, PartlyRight, Simulation
from tests.core.test_draft_engine import opened
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


# ---- what a draft has brought so far


def test_an_unknown_adapter_has_the_prior() -> None:
    none, one, two = Acceptance().expected(2)
    assert none == (1.0, 0.0)
    assert one == pytest.approx((1 + PRIOR_ACCEPTANCE, 1.0))
    assert two == pytest.approx((1 + PRIOR_ACCEPTANCE + PRIOR_ACCEPTANCE**2, 2.0))


def test_tokens_that_were_not_asked_for_tell_nothing() -> None:
    acceptance = Acceptance()
    before = acceptance.expected(4)
    for _ in range(50):
        acceptance.observe(2, 2, 0)
    after = acceptance.expected(4)
    assert after[2].tokens < 1.2 < before[2].tokens
    assert after[4].tokens - after[2].tokens == pytest.approx(before[4].tokens - before[2].tokens)


def test_chains_that_end_early_take_few_rows() -> None:
    acceptance = Acceptance()
    for number in range(1000):
        length = 8 if number % 2 else 1
        acceptance.observe(8, length, length)
    tokens, proposed = acceptance.expected(8)[-1]
    assert (tokens, proposed) == pytest.approx((5.5, 4.5), rel=0.05)
    assert acceptance.tokens(8) == pytest.approx(9.0, rel=0.05)


@given(st.lists(st.tuples(st.integers(0, 16), st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=300))
def test_expectations_are_possible(passes: list[tuple[int, float, float]]) -> None:
    acceptance = Acceptance()
    for asked, share, right in passes:
        proposed = int(share * asked)
        acceptance.observe(asked, proposed, int(right * proposed))
    for asked, (tokens, proposed_tokens) in enumerate(acceptance.expected(16)):
        assert 1.0 <= tokens <= 1.0 + proposed_tokens + 1e-9 <= 1.0 + asked + 1e-6


def test_what_a_draft_did_long_ago_is_forgotten() -> None:
    acceptance = Acceptance()
    for _ in range(2000):
        acceptance.observe(1, 1, 0)
    for _ in range(3 * int(MEMORY)):
        acceptance.observe(1, 1, 1)
    assert acceptance.expected(1)[1].tokens > 1.94


# ---- how sure a draft is


def test_confidence_learns_what_became_of_guesses_with_such_a_lead() -> None:
    confidence = Confidence()
    before = confidence.of(5.0)
    for number in range(400):
        confidence.observe(0.6, right=number % 4 == 0)
    assert confidence.of(0.7) == pytest.approx(0.25, abs=0.02)
    assert confidence.of(5.0) == before


@given(st.lists(st.tuples(st.floats(0.0, math.inf), st.booleans()), max_size=100), st.floats(0.0, math.inf))
def test_confidence_is_a_probability(guesses: list[tuple[float, bool]], lead: float) -> None:
    confidence = Confidence()
    for guess, right in guesses:
        confidence.observe(guess, right=right)
    assert 0.0 < confidence.of(lead) < 1.0


def test_before_anything_was_learned_a_larger_lead_is_surer() -> None:
    sure = [Confidence().of(lead) for lead in (0.0, *EDGES)]
    assert sure == sorted(set(sure))


def test_a_chain_ends_with_the_first_token_that_is_not_worth_another() -> None:
    session = DraftSession(opened(request(400), ahead=16), VERIFIER, 0.0, Confidence())
    for token in range(16):
        session.chain.append(Guess(token, 3.5))
    lengths = []
    for worth in (0.0, 0.1, 0.5, 0.99):
        session.take(Commit(1, len(PROMPT), (), worth=worth))
        lengths.append(len(session.proposal().tokens))
        assert session.complete
    sure = [Confidence().of(3.5) ** count for count in range(1, 17)]
    assert lengths == [next((n + 1 for n in range(16) if sure[n] < worth), 16) for worth in (0.0, 0.1, 0.5, 0.99)]
    assert lengths[0] == 16 > lengths[1] > lengths[2] > lengths[3] == 1


def test_probes_of_a_draft_that_does_not_pay_become_rare() -> None:
    probe = Probe()
    assert probe.ask(Ask(5, 0.3), 8) == Ask(8, 0.3)
    asked = [probe.ask(Ask(0), 8).most for _ in range(1000)]
    assert sum(asked[:50]) <= 2
    assert 0 < sum(asked[200:]) <= 800 / LONGEST_PAUSE + 1
    probe.right()
    assert [probe.ask(Ask(0), 8).most for _ in range(3)] == [1, 0, 0]


def test_at_first_and_now_and_then_all_is_asked_for() -> None:
    probe = Probe()
    asked = Counter(probe.ask(Ask(5, 0.3), 8) for _ in range(10 * EXPLORE))
    assert asked == {Ask(8, 0.3): EXPLORE + 9, Ask(5, 0.3): 9 * (EXPLORE - 1)}


# ---- what it reads


def test_a_reply_has_a_fixed_part_and_one_per_token() -> None:
    reply = replies(0.002, 0.001)
    assert [reply.mean(tokens) for tokens in (0, 3, 10)] == pytest.approx([0.002, 0.005, 0.012])
    assert reply.each == pytest.approx(0.001)
    assert reply.latest(3) >= reply.mean(3)


def test_a_reply_of_one_length_leaves_the_rest_to_proportion() -> None:
    reply = Reply()
    for _ in range(10):
        reply.observe(4, 0.005)
    assert [reply.mean(tokens) for tokens in (0, 4, 9)] == pytest.approx([0.001, 0.005, 0.010])


@given(st.lists(st.tuples(st.integers(0, 16), st.floats(0.0, 10.0)), min_size=1, max_size=60), st.integers(0, 16))
def test_a_reply_never_takes_less_than_nothing(answers: list[tuple[int, float]], tokens: int) -> None:
    reply = Reply()
    for length, seconds in answers:
        reply.observe(length, seconds)
    assert reply.mean(tokens) >= -1e-9
    assert reply.deviation >= 0.0


# ---- in the engine


def test_a_useless_draft_is_soon_asked_for_next_to_nothing() -> None:
    simulation = Simulation()
    asked = request(400, temperature=0.0)  # with dice of its own even a wrong draft would often guess right
    number = simulation.generate(asked)
    simulation.join(simulation.draft(PASS / 20, ToyModel(salt=1)), number, asked)
    simulation.run()
    proposed = [run.proposed for run in simulation.target.runs[number]]
    assert sum(proposed[50:]) / len(proposed[50:]) < 0.1
    assert tuple(t for run in simulation.target.runs[number] for t in run.tokens) == plain_tokens(asked)


def test_a_good_draft_is_asked_for_all_it_may_bring() -> None:
    simulation = Simulation()
    asked = request(300)
    number = simulation.generate(asked)
    simulation.join(simulation.draft(PASS / 50), number, asked)
    simulation.run()
    proposed = [run.proposed for run in simulation.target.runs[number]]
    assert sorted(proposed)[len(proposed) // 2] == VerifyConfig().num_speculative_tokens


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
    assert Counter(wanted[EXPLORE:]).most_common(1)[0][0] == 1
    assert Counter(run.proposed for run in bench.runs[number][EXPLORE:]).most_common(1)[0][0] == 1
    assert max(run.proposed for run in bench.runs[number]) == 4


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
