"""Drafts and the verify engine: what they are told, who holds the epoch, what is dropped, what the target is shown."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.generation import Run
from core.verify.engine import VerifyConfig
from core.wire.messages import Close, Commit, Propose
from tests.core.toy import PROMPT, VOCAB_SIZE, plain_tokens, request
from tests.core.verify.bench import Bench


def told(bench: Bench, peer: bytes = b"math#1") -> list[Commit | Close]:
    return [message for to, message in bench.engine.outgoing() if to == peer]


def test_a_draft_is_told_what_it_does_not_know() -> None:
    bench = Bench()
    answer = plain_tokens(request(20))
    [number] = bench.engine.open([request(20)])
    bench.step()
    bench.propose(number, len(PROMPT), ())
    assert told(bench) == [Commit(number, len(PROMPT), answer[:1])]
    bench.step()
    assert told(bench) == [Commit(number, len(PROMPT), answer[:2])]
    bench.propose(number, len(PROMPT) + 2, ())
    assert told(bench) == []
    bench.step()
    assert told(bench) == [Commit(number, len(PROMPT) + 2, answer[2:3])]


def test_a_draft_unheard_for_its_lease_is_not_spoken_to_until_it_is_heard() -> None:
    bench = Bench(VerifyConfig(draft_lease=2.0))
    bench.engine.policy.costs.observe(1, 0.010)
    [number] = bench.engine.open([request(50)])
    bench.step()
    bench.propose(number, len(PROMPT), ())
    bench.step()
    assert len(told(bench)) == 1
    bench.clock.now += 2.5
    bench.step()
    assert (told(bench), bench.engine.wait()) == ([], 0.0)
    bench.propose(number, len(PROMPT) + 1, ())
    bench.step()
    assert [len(message.tokens) for message in told(bench) if isinstance(message, Commit)] == [3]


def test_a_draft_whose_session_is_queued_hears_that_it_lives() -> None:
    bench = Bench(VerifyConfig(max_sessions=1))
    bench.engine.open([request(50)])
    [queued] = bench.engine.open([request(50)])
    bench.propose(queued, len(PROMPT), (1, 2))
    assert told(bench) == []
    bench.propose(queued, len(PROMPT), (1, 2))
    assert told(bench) == [Commit(queued, len(PROMPT), ())]


def test_a_newer_seat_takes_over_and_the_older_draft_is_sent_away() -> None:
    bench = Bench()
    [number] = bench.engine.open([request(50)])
    bench.propose(number, len(PROMPT), (1, 2), epoch=0, peer=b"old#1")
    bench.propose(number, len(PROMPT), (3,), epoch=1, peer=b"new#1")
    assert bench.engine.outgoing() == [(b"old#1", Close(number, 0))]
    bench.propose(number, len(PROMPT), (1, 2), epoch=0, peer=b"old#1")
    bench.propose(number, len(PROMPT), (1, 2), epoch=1, peer=b"thief#1")
    assert bench.engine.outgoing() == [(b"old#1", Close(number, 0)), (b"thief#1", Close(number, 1))]
    assert bench.engine.counts["dropped_old_epoch"] == 2


def test_a_draft_of_an_unknown_session_is_sent_away() -> None:
    bench = Bench()
    bench.propose(77, 5, (1,), epoch=3)
    assert told(bench) == [Close(77, 3)]


@pytest.mark.parametrize(
    ("base", "tokens", "reason"),
    [
        (len(PROMPT), (1,) * 17, "too_long"),
        (-1, (1,), "too_long"),
        (len(PROMPT), (VOCAB_SIZE,), "bad_token"),
        (len(PROMPT), (-1,), "bad_token"),
        (0, (9, 9), "stale"),
        (len(PROMPT) + 1, (1,), "stale"),
        (2**62, (), "stale"),
    ],
)
def test_a_hostile_proposal_is_counted_and_dropped(base: int, tokens: tuple[int, ...], reason: str) -> None:
    bench = Bench()
    [number] = bench.engine.open([request(20)])
    bench.propose(number, base, tokens)
    assert bench.engine.counts == {f"dropped_{reason}": 1}
    bench.finish()
    assert bench.engine.counts["proposed_draft"] == 0
    assert bench.tokens(number) == plain_tokens(request(20))


def test_passes_with_proposals_count_by_how_many_tokens_were_accepted() -> None:
    bench = Bench()
    answer = plain_tokens(request(60))
    [number] = bench.engine.open([request(60)])
    bench.step()
    for right in (3, 0, 3, 4, 1):
        begin = len(bench.tokens(number))
        wrong = [(token + 1) % VOCAB_SIZE for token in answer[begin + right : begin + 4]]
        bench.propose(number, len(PROMPT) + begin, [*answer[begin : begin + right], *wrong])
        bench.step()
    bench.step()
    counts = bench.engine.counts
    assert {name: passes for name, passes in counts.items() if name.startswith("passes_accepting_")} == {
        "passes_accepting_3": 2,
        "passes_accepting_0": 1,
        "passes_accepting_4": 1,
        "passes_accepting_1": 1,
    }
    assert (counts["proposed"], counts["accepted"], counts["plain_passes"]) == (20, 11, 2)
    assert counts["tokens"] == len(bench.tokens(number)) == 1 + 11 + 5 + 1


@pytest.mark.parametrize(("cap", "put"), [(None, 4), (0, 0), (2, 2), (9, 9), (99, 16)])
def test_no_more_is_put_to_the_target_than_request_and_service_allow(cap: int | None, put: int) -> None:
    bench = Bench()
    answer = plain_tokens(request(60))
    [number] = bench.engine.open([msgspec.structs.replace(request(60), num_speculative_tokens=cap)])
    bench.step()
    bench.propose(number, len(PROMPT) + 1, answer[1:17])
    bench.step()
    assert bench.runs[number][-1] == Run(answer[1 : 2 + put], proposed=put, accepted=put)


CHAINS = st.one_of(
    st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=6).map(tuple),
    st.sampled_from([(), (-1,), (VOCAB_SIZE,), (2**63 - 1,), (1,) * 17, (1,) * 40]),
)
HOSTILE = st.tuples(
    st.sampled_from([b"math#1"] * 4 + [b"math@1a2b#2", b"#", b"", b"\xff\x00#3"]),
    st.builds(
        Propose,
        session=st.sampled_from([0, 0, 0, 7]),  # 0 is the session's own
        epoch=st.sampled_from([0, 0, 0, 1, -2, 2**63 - 1]),
        base=st.sampled_from([0, 0, 0, -1, -4, 1, -(2**62), 2**62]),  # from the end of what is committed
        tokens=CHAINS,
        took=st.sampled_from([None, 0.0, 0.001, -1.0, math.nan, 9.0, 1e300, math.inf]),
        branches=st.lists(CHAINS, max_size=10).map(tuple),
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(HOSTILE, max_size=4), max_size=40), st.booleans(), st.floats(0.0, 0.1))
@example([[(b"math#1", Propose(0, 0, 0, (), math.inf))]] * 2, True, 0.01)
def test_no_draft_whatever_it_says_fails_a_request_changes_it_or_holds_it_up(
    rounds: list[list[tuple[bytes, Propose]]], always: bool, trip: float
) -> None:
    bench = Bench()
    for rows in range(1, 18):
        bench.engine.policy.costs.observe(rows, 0.010)
    asked = msgspec.structs.replace(request(40), always_draft=always)
    [number] = bench.engine.open([asked])
    for messages in [*rounds, *[[]] * 40]:
        if not bench.sessions:
            break
        for peer, message in messages:
            base = message.base + len(PROMPT) + len(bench.tokens(number))
            sent = msgspec.structs.replace(message, session=message.session or number, base=base)
            bench.engine.receive(peer, msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Propose))
        latest = bench.clock.now + bench.engine.config.draft_lease
        while wait := bench.engine.wait():
            bench.clock.now += wait
            assert bench.clock.now < latest
        bench.clock.now += trip
        bench.step()
        bench.engine.outgoing()
    assert bench.tokens(number) == plain_tokens(asked)
    assert not bench.engine.failures()
