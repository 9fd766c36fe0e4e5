"""How many tokens are asked of a draft: the rule, what it reads, and what becomes of a draft that guesses badly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.draft_engine import DraftConfig, DraftEngine
from core.messages import Commit
from core.model.base import Rows
from core.reply import MAX_PEERS, Replies, Reply
from core.speculation_length import LONGEST_PAUSE, Others, Probe, best_length
from core.step_rule import StepCosts
from core.verify_engine import VerifyConfig
from tests.core.simulation import PASS, VERIFIER, PartlyRight, Simulation
from tests.core.test_draft_engine import opened
from tests.core.toy import PROMPT, VOCAB_SIZE, Clock, ToyModel, plain_tokens, request
from tests.core.verify_bench import Bench

ALONE = Others()


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


def expected(acceptance: float, most: int = 6) -> list[float]:
    return [sum(acceptance**power for power in range(length + 1)) for length in range(most + 1)]


# ---- the rule


def test_rows_for_nothing_are_all_asked_for() -> None:
    assert best_length(expected(0.3), replies(0.0, 0.0), ALONE, costs(1.0, 0.0)) == 6


def test_before_any_pass_was_measured_all_are_asked_for() -> None:
    assert best_length(expected(0.1), Reply(), ALONE, StepCosts()) == 6


def test_a_draft_that_is_never_right_is_asked_for_nothing() -> None:
    assert best_length(expected(0.0), replies(0.001, 0.001), ALONE, costs(1.0, 0.01)) == 0


def test_a_draft_slower_than_the_target_is_asked_for_nothing() -> None:
    assert best_length(expected(0.7), replies(0.0, 1.1), ALONE, costs(1.0, 0.0)) == 0


def test_the_better_the_draft_the_more_is_asked_of_it() -> None:
    lengths = [best_length(expected(a / 20), replies(0.02, 0.05), ALONE, costs(1.0, 0.05)) for a in range(21)]
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[-1] == 6


def test_a_full_batch_asks_for_less_than_a_lone_session() -> None:
    dear_rows = costs(0.2, 0.1)
    lengths = [
        best_length(expected(0.6), replies(0.0, 0.001), Others(1.0 * others, others, 0.0), dear_rows)
        for others in (0, 8, 32)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]


def test_waiting_that_others_wait_for_anyway_is_free() -> None:
    slow = replies(0.0, 0.5)
    assert best_length(expected(0.5), slow, Others(1.0, 1, 0.0), costs(1.0, 0.0)) == 0
    assert best_length(expected(0.5), slow, Others(3.0, 5, 3.0), costs(1.0, 0.0)) == 6


@given(
    st.lists(st.floats(0.0, 1.0), max_size=8),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.floats(1e-3, 1.0),
    st.floats(0.0, 0.2),
    st.integers(0, 20),
)
def test_no_other_length_has_a_better_rate(
    acceptances: list[float], fixed: float, each: float, step: float, row: float, others: int
) -> None:
    survivals = [math.prod(acceptances[:length]) for length in range(1, len(acceptances) + 1)]
    tokens = [1.0 + sum(survivals[:length]) for length in range(len(acceptances) + 1)]
    measured, reply = costs(step, row), replies(fixed, each)

    def rate(length: int) -> float:
        wait = reply.mean(length) if length else 0.0
        return (others + tokens[length]) / (wait + measured.seconds(others + 1 + length))

    chosen = best_length(tokens, reply, Others(others, others), measured)
    assert rate(chosen) >= max(map(rate, range(len(tokens)))) - 1e-12


def test_probes_of_a_draft_that_does_not_pay_become_rare() -> None:
    probe = Probe()
    assert probe.length(5) == 5
    asked = [probe.length(0) for _ in range(1000)]
    assert sum(asked[:50]) <= 2
    assert 0 < sum(asked[200:]) <= 800 / LONGEST_PAUSE + 1
    probe.right()
    assert [probe.length(0) for _ in range(3)] == [1, 0, 0]


# ---- what it reads


def test_a_reply_has_a_fixed_part_and_one_per_token() -> None:
    reply = replies(0.002, 0.001)
    assert [reply.mean(tokens) for tokens in (0, 3, 10)] == pytest.approx([0.002, 0.005, 0.012])
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


def test_draft_processes_not_heard_for_long_are_forgotten() -> None:
    known = Replies()
    first = known.of(b"math#0")
    assert known.of(b"math#0") is first
    for number in range(MAX_PEERS):
        known.of(b"chatter#%d" % number)
    assert known.of(b"math#0") is not first


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
    while len(bench.tokens(number)) < 50:  # the first guess is right, the others never are
        known = len(bench.tokens(number))
        wrong = (answer[known + 1] + 1) % VOCAB_SIZE
        bench.propose(number, len(PROMPT) + known, (answer[known], wrong, wrong, wrong))
        bench.step()
    commits = [message for _, message in bench.engine.outgoing() if isinstance(message, Commit)]
    assert commits[-1].wanted == 1
    assert bench.runs[number][-1].proposed == 1
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
