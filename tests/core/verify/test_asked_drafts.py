"""What becomes in the engine of drafts that guess well or badly, of one and of many sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec import structs

from core.draft.engine import DraftConfig, DraftEngine
from core.draft_key import DraftKey
from core.model.base import Rows
from core.policy.cost_model import profile
from core.policy.draft_policy import FORGET_PASSES
from core.verify.engine import VerifyConfig
from core.verify.sources import DRAFTS_ALONE
from core.wire.messages import Commit
from tests.core.pair import opened
from tests.core.simulation import PASS, VERIFIER, PartlyRight, Simulation
from tests.core.toy import PROMPT, VOCAB_SIZE, Clock, ToyModel, plain_tokens, request
from tests.core.verify.bench import Bench


@pytest.mark.parametrize("salt", range(1, 9))
def test_a_useless_draft_is_soon_asked_for_next_to_nothing(salt: int) -> None:
    simulation = Simulation(VerifyConfig(lookup=DRAFTS_ALONE))
    asked = request(600, temperature=0.0)  # with dice of its own even a wrong draft would often guess right
    number = simulation.generate(asked)
    simulation.join(simulation.draft(PASS / 20, ToyModel(salt=salt)), number, asked)
    simulation.run()
    proposed = [run.proposed for run in simulation.target.runs[number]]
    assert sum(proposed[50:]) / len(proposed[50:]) < 0.2
    assert tuple(t for run in simulation.target.runs[number] for t in run.tokens) == plain_tokens(asked)


@pytest.mark.parametrize("seconds", [PASS / 20, PASS])
def test_a_request_that_always_drafts_gets_proposals_though_they_do_not_pay(seconds: float) -> None:
    simulation = Simulation()
    asked = structs.replace(request(200), always_draft=True)
    number = simulation.generate(asked)
    simulation.join(simulation.draft(seconds, ToyModel(salt=1)), number, asked)
    simulation.run()
    runs = simulation.target.runs[number]
    assert sum(run.proposed > 0 for run in runs) > 0.8 * len(runs)
    assert tuple(token for run in runs for token in run.tokens) == plain_tokens(asked)


def test_a_good_draft_is_asked_for_all_it_may_bring() -> None:
    simulation = Simulation()
    asked = request(300)
    number = simulation.generate(asked)
    simulation.join(simulation.draft(PASS / 50), number, asked)
    simulation.run()
    proposed = [run.proposed for run in simulation.target.runs[number]]
    assert sorted(proposed)[len(proposed) // 2] == VerifyConfig().num_speculative_tokens


def test_where_rows_are_dear_many_sessions_go_without_proposals_and_the_last_one_has_them_again() -> None:
    simulation = Simulation()

    def dear_by_the_row(batch: Sequence[Rows]) -> None:
        simulation.clock.now += PASS * (0.6 + 0.05 * sum(len(rows.tokens) for rows in batch))

    simulation.target.model.on_forward = dear_by_the_row
    profile(simulation.target.model, simulation.clock, simulation.target.engine.policy.costs)
    lengths = [400] + 15 * [150]
    numbers = [simulation.generate(request(length)) for length in lengths]
    draft = simulation.draft(PASS / 50, PartlyRight(3))
    for number, length in zip(numbers, lengths, strict=True):
        simulation.join(draft, number, request(length))
    wanted = []
    while len(simulation.target.runs[numbers[0]]) < 140:
        simulation.turn()
        wanted.append(not simulation.target.engine.declined(1.0).get(DraftKey("math")))
    simulation.run()
    proposed = [run.proposed for run in simulation.target.runs[numbers[0]]]
    assert sum(proposed[40:140]) <= 0.2 * 100
    assert not wanted[-1]
    assert sum(proposed[-40:]) >= 2 * 40
    assert tuple(t for run in simulation.target.runs[numbers[0]] for t in run.tokens) == plain_tokens(request(400))


def test_a_draft_that_gets_better_is_asked_again() -> None:
    simulation = Simulation(VerifyConfig(lookup=DRAFTS_ALONE))
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
    assert not simulation.target.engine.declined(0.0)[DraftKey("math")]


def test_one_session_of_a_draft_that_was_slow_under_load_shows_that_it_is_quick_again() -> None:
    simulation, asked = Simulation(), request(60)
    draft = simulation.draft(PASS, PartlyRight(4))
    engine = simulation.target.engine

    def answered(drafted: int) -> None:
        numbers = [simulation.generate(asked) for _ in range(8)]
        for number in numbers[:drafted]:
            simulation.join(draft, number, asked)
        simulation.run()

    answered(8)
    assert engine.declined(1.0)[DraftKey("math")]
    draft._seconds = PASS / 100
    before = engine.counts["steps"]
    while engine.declined(1.0)[DraftKey("math")] and engine.counts["steps"] - before < 2 * FORGET_PASSES:
        answered(1)
    assert not engine.declined(1.0)[DraftKey("math")]


@pytest.mark.parametrize(("off", "wanted"), [(0, True), (1, False)])
def test_answers_that_come_after_the_pass_tell_how_good_a_draft_is(off: int, wanted: bool) -> None:
    bench = Bench(VerifyConfig(num_speculative_tokens=1, lookup=DRAFTS_ALONE))

    def take_time(batch: Sequence[Rows]) -> None:
        bench.clock.now += PASS * (1 + 0.2 * sum(len(rows.tokens) for rows in batch))

    bench.model.on_forward = take_time
    answer = plain_tokens(request(300))
    [number] = bench.engine.open([request(300)])
    bench.step()
    bench.propose(number, len(PROMPT) + 1, ())
    for _ in range(250):
        known = len(bench.tokens(number))
        bench.step()
        bench.propose(number, len(PROMPT) + known, ((answer[known] + off) % VOCAB_SIZE,))
    assert sum(run.proposed for run in bench.runs[number]) == 0
    assert bench.engine.declined(1.0)[DraftKey("math")] != wanted


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
        wanted += [message.num_tokens for _, message in bench.engine.outgoing() if isinstance(message, Commit)]
    assert Counter(wanted[8:]).most_common(1)[0][0] == 1
    assert Counter(run.proposed for run in bench.runs[number][8:]).most_common(1)[0][0] == 1
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


def first_wish(bench: Bench) -> tuple[int, int | None]:
    """A new session, and what its draft is asked for at its first word."""
    [number] = bench.engine.open([request(60)])
    bench.step()
    bench.engine.outgoing()
    bench.propose(number, len(PROMPT), ())
    [(_, message)] = bench.engine.outgoing()
    assert isinstance(message, Commit)
    return number, message.num_tokens


def test_a_draft_that_does_not_pay_is_asked_for_nothing_at_its_first_word() -> None:
    bench = Bench()
    assert first_wish(bench)[1] is None  # all there may be
    useless(bench)
    assert first_wish(bench)[1] == 0


def test_a_message_of_a_draft_that_was_asked_for_nothing_measures_no_latency() -> None:
    bench = Bench()
    useless(bench)
    number, _ = first_wish(bench)
    link = bench.engine._sessions.get(number).link
    before = [link.latency.expected(tokens) for tokens in range(5)]
    bench.engine._links.idle = True  # for another session's draft, when the message comes, long after
    bench.clock.now += 0.7
    bench.propose(number, len(PROMPT) + 1, ())
    assert [link.latency.expected(tokens) for tokens in range(5)] == before


def test_a_draft_of_which_nothing_is_wanted_is_left_alone_until_something_is() -> None:
    simulation = Simulation()
    asked = request(900)
    number = simulation.generate(asked)
    draft = simulation.draft(PASS / 3, ToyModel(salt=1))
    simulation.join(draft, number, asked)
    simulation.run()
    runs = simulation.target.runs[number]
    assert len(runs) > 850
    assert draft.engine.counts["rounds"] < 0.1 * len(runs)


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


def test_a_slow_replica_of_a_draft_does_not_keep_a_quick_one_from_being_asked() -> None:
    simulation = Simulation(VerifyConfig(lookup=DRAFTS_ALONE))
    asked = request(1000)
    quick, slow = simulation.draft(PASS / 50), simulation.draft(2 * PASS)
    numbers = [simulation.generate(asked) for _ in range(2)]
    for draft, number in zip((quick, slow), numbers, strict=True):
        simulation.join(draft, number, asked)
    simulation.run()
    runs = simulation.target.runs[numbers[0]]
    assert sum(run.proposed > 0 for run in runs) > 0.8 * len(runs)


def test_a_draft_that_is_not_heard_any_more_does_not_count_as_computing() -> None:
    bench = Bench(VerifyConfig(draft_lease=1.0))

    def take_time(_: Sequence[Rows]) -> None:
        bench.clock.now += PASS

    bench.model.on_forward = take_time
    [number] = bench.engine.open([request(1000)])
    bench.step()
    bench.propose(number, len(PROMPT) + 1, ())
    session = bench.engine._sessions.get(number)
    bench.step()
    assert session.link.computes
    for _ in range(round(1.5 / PASS)):
        bench.step()
    assert not session.link.computes
    bench.propose(number, session.length, ())
    bench.step()
    assert session.link.computes


def test_a_pass_that_completes_a_resumed_answer_does_not_wait_for_drafts() -> None:
    bench = Bench()
    bench.engine._links.idle = True  # a pass before has waited
    answer = plain_tokens(request(60))
    bench.engine.open([structs.replace(request(60), tokens=PROMPT + answer)])
    assert bench.engine.wait() == 0.0
    assert not bench.engine._links.idle
