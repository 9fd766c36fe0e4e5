"""What becomes in the engine of drafts that guess well or badly, of one and of many sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec import structs

from core.asking import FIRST_PAUSE, LEARNING
from core.draft_engine import DraftConfig, DraftEngine
from core.messages import Commit
from core.model.base import Rows
from core.verify_engine import VerifyConfig
from tests.core.pair import opened
from tests.core.simulation import PASS, VERIFIER, PartlyRight, Simulation
from tests.core.toy import PROMPT, VOCAB_SIZE, Clock, ToyModel, plain_tokens, request
from tests.core.verify_bench import Bench


@pytest.mark.parametrize("salt", range(1, 9))
def test_a_useless_draft_is_soon_asked_for_next_to_nothing(salt: int) -> None:
    simulation = Simulation()
    asked = request(600, temperature=0.0)  # with dice of its own even a wrong draft would often guess right
    number = simulation.generate(asked)
    simulation.join(simulation.draft(PASS / 20, ToyModel(salt=salt)), number, asked)
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


def test_one_session_of_a_draft_that_was_slow_under_load_shows_that_it_is_quick_again() -> None:
    simulation, asked = Simulation(), request(60)
    draft = simulation.draft(PASS)
    for drafted, wanted in ((8, False), (1, True)):
        numbers = [simulation.generate(asked) for _ in range(8)]
        for number in numbers[:drafted]:
            simulation.join(draft, number, asked)
        simulation.run()
        assert list(simulation.target.engine.wanted().values()) == [wanted]
        draft._seconds = PASS / 100


def test_of_the_sessions_of_a_draft_that_does_not_pay_one_is_a_scout_and_never_one_without_speculation() -> None:
    bench = Bench()
    useless(bench)
    plain = structs.replace(request(9), num_speculative_tokens=0)
    assert bench.engine.scout(bench.engine.open([plain])) is None
    numbers = bench.engine.open([plain, request(9), request(9)])
    assert bench.engine.scout(numbers) == numbers[1]
    assert bench.engine.scout(bench.engine.open([request(9)])) is None


@pytest.mark.parametrize("scouting", [True, False])
def test_a_proposal_of_a_scout_is_waited_for_among_sessions_without_drafts(scouting: bool) -> None:
    """Two rows cost one's time and sixteen eight times as much: alone a draft pays, and is timed; then it does not."""
    simulation, asked = Simulation(), request(40)

    def dear_from_the_third_row(batch: Sequence[Rows]) -> None:
        simulation.clock.now += PASS * max(1.0, sum(len(rows.tokens) for rows in batch) / 2)

    simulation.target.model.on_forward = dear_from_the_third_row
    draft = simulation.draft(PASS / 5, PartlyRight(2))
    for sessions in (1, 16):
        numbers = [simulation.generate(asked) for _ in range(sessions)]
        if sessions > 1 and scouting:
            assert simulation.target.engine.scout(numbers[:1]) == numbers[0]
        simulation.join(draft, numbers[0], asked)
        simulation.run()
        assert any(run.proposed for run in simulation.target.runs[numbers[0]]) == (sessions == 1 or scouting)


@pytest.mark.parametrize(("off", "wanted"), [(0, True), (1, False)])
def test_answers_that_come_after_the_pass_tell_how_good_a_draft_is(off: int, wanted: bool) -> None:
    bench = Bench(VerifyConfig(num_speculative_tokens=1))

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
    assert bench.engine.wanted() == {"math": wanted}


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
    asks = draft.engine.counts["drafted"]  # looks, for a token each, many of which no pass waits for
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
