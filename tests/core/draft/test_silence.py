"""A draft engine between a verifier's silences: leases, repeats, and what it does while nothing is wanted of it."""

from __future__ import annotations

from msgspec import structs

from core.wire.messages import Commit, Propose
from tests.core.draft.bench import draft, drafted
from tests.core.pair import opened
from tests.core.simulation import VERIFIER
from tests.core.toy import PROMPT, request

# ---- leases and repeats


def test_a_session_unheard_for_its_lease_is_freed() -> None:
    engine, model, clock = draft(session_lease=10.0)
    for session in (1, 2):
        engine.open(opened(request(20), session), VERIFIER)
    clock.now = 6.0
    engine.receive(VERIFIER, Commit(2, 0, ()))
    clock.now = 10.5
    assert engine.expired() == [1]
    assert list(model.cached) == [2]
    clock.now = 16.5
    assert engine.expired() == [2]
    assert (model.cached, engine.wait()) == ({}, None)


def test_silence_is_met_with_a_repeat_after_three_rounds() -> None:
    engine, _, clock = draft()
    engine.open(opened(request(2000), lookahead=False), VERIFIER)  # there is nothing else to do
    for _ in range(60):
        [proposal] = drafted(engine)
        clock.now += 0.010
        engine.receive(VERIFIER, Commit(1, proposal.base, proposal.tokens))
    [proposal] = drafted(engine)
    clock.now += 0.025
    assert engine.outgoing() == []
    assert 0.0 < (engine.wait() or 0.0) < 0.007
    clock.now += 0.007
    assert [message for _, message in engine.outgoing()] == [structs.replace(proposal, took=None)]
    assert engine.outgoing() == []


def test_repeats_do_not_come_ever_faster() -> None:
    engine, _, clock = draft()
    engine.open(opened(request(2000)), VERIFIER)
    sent = 0
    for _ in range(100):  # rounds ten times as long as the first guess
        proposals = drafted(engine)
        for _ in range(100):
            clock.now += 0.005
            sent += len(engine.outgoing())
        engine.receive(VERIFIER, Commit(1, proposals[-1].base, proposals[-1].tokens))
    assert sent < 100


def test_a_commit_that_was_under_way_when_a_draft_answered_makes_no_round_seem_short() -> None:
    engine, _, _ = draft()
    engine.open(opened(request(2000), lookahead=False), VERIFIER)
    told: list[int] = []
    for _ in range(60):
        [proposal] = drafted(engine)
        told += proposal.tokens
        engine.receive(VERIFIER, Commit(1, len(PROMPT), tuple(told)))  # as one that has heard nothing since the first
    drafted(engine)
    assert (engine.wait() or 0.0) > 0.010


def test_where_nothing_is_wanted_silence_is_met_with_a_repeat_after_a_second() -> None:
    engine, _, clock = draft(idle_repeat=1.0)
    engine.open(opened(request(2000)), VERIFIER)
    drafted(engine)
    engine.receive(VERIFIER, Commit(1, len(PROMPT), (7,), num_tokens=0))
    clock.now += 0.95
    assert drafted(engine) == []
    assert 0.0 < (engine.wait() or 0.0) < 0.06
    clock.now += 0.06
    assert [message for _, message in engine.outgoing()] == [Propose(1, 0, len(PROMPT) + 1, ())]
    engine.receive(VERIFIER, Commit(1, len(PROMPT) + 1, (5,) * 40, num_tokens=2))  # what it took is no round
    assert [len(proposal.tokens) for proposal in drafted(engine)] == [2]
    assert 0.0 < (engine.wait() or 0.0) < 0.06


def test_what_is_asked_after_a_long_silence_is_answered_once_and_whole() -> None:
    engine, _, clock = draft()
    engine.open(opened(request(2000)), VERIFIER)
    drafted(engine)
    engine.receive(VERIFIER, Commit(1, len(PROMPT), (7,), num_tokens=0))
    clock.now += 0.5
    engine.receive(VERIFIER, Commit(1, len(PROMPT), (7, 5), num_tokens=1))
    assert engine.outgoing() == []  # an empty proposal would be the answer that is measured
    assert [len(proposal.tokens) for proposal in drafted(engine)] == [1]


def test_an_answer_that_takes_long_is_not_announced_by_an_empty_one() -> None:
    engine, _, clock = draft(prefill_chunk=1, idle_repeat=1.0)
    engine.open(opened(request(2000)), VERIFIER)
    engine.receive(VERIFIER, Commit(1, len(PROMPT), (7,) * 40, num_tokens=2))
    sent: list[Propose] = []
    for _ in range(len(PROMPT) + 40):
        clock.now += 0.02
        sent += drafted(engine, passes=1)
    assert [len(proposal.tokens) for proposal in sent if proposal.base > len(PROMPT)] == [2]


def test_a_draft_that_drafts_for_long_says_that_it_lives() -> None:
    engine, _, clock = draft(prefill_chunk=1, idle_repeat=1.0)
    engine.open(opened(request(2000)), VERIFIER)
    engine.receive(VERIFIER, Commit(1, len(PROMPT), (7,) * 40, num_tokens=2))
    clock.now += 1.01
    assert [len(proposal.tokens) for proposal in drafted(engine, passes=1)] == [0]


def test_sessions_of_which_nothing_is_wanted_break_their_silence_together() -> None:
    engine, _, clock = draft(idle_repeat=1.0)
    for number in range(1, 9):
        clock.now += 0.05
        engine.open(opened(request(2000), number), VERIFIER)
        drafted(engine)
        engine.receive(VERIFIER, Commit(number, len(PROMPT), (7,), num_tokens=0))
    for _ in range(3):
        clock.now += engine.wait() or 0.0
        assert len(engine.outgoing()) == 8
        assert (engine.wait() or 0.0) > 0.99


def test_word_that_the_session_lives_needs_no_answer() -> None:
    engine, _, clock = draft()
    engine.open(opened(request(20)), VERIFIER)
    drafted(engine)
    clock.now += 0.01
    engine.receive(VERIFIER, Commit(1, len(PROMPT), ()))
    assert engine.outgoing() == []
