"""What a draft prepares for verdicts is sent before they are there, and the next pass begins with what fits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core.draft import engine as draft_engine
from core.draft.engine import DraftConfig, DraftEngine
from core.draft.lookahead import PAUSE
from core.draft.proposer import LineRows
from core.generation import MAX_SPECULATIVE_TOKENS
from core.model.base import Rows
from core.verify.engine import VerifyConfig
from core.wire.messages import MOST_BRANCHES, Commit, Propose
from tests.core import simulation
from tests.core.pair import opened
from tests.core.simulation import PASS, VERIFIER, Near, Simulation
from tests.core.toy import PROMPT, VOCAB_SIZE, Clock, ToyModel, plain_tokens, request
from tests.core.verify.bench import Bench

ANSWER = plain_tokens(request(60))
LENGTH = len(PROMPT) + 1  # of what is committed after the prefill


# ---- the verifier


def seated(tokens: Sequence[int] = ()) -> tuple[Bench, int]:
    """A session after its prefill and a draft known to take a tenth of a pass, which has answered with `tokens`."""
    bench = Bench()

    def take_time(_: Sequence[Rows]) -> None:
        bench.clock.now += PASS

    bench.model.on_forward = take_time
    [number] = bench.engine.open([request(60)])
    bench.step()
    bench.propose(number, LENGTH, tokens)
    session = bench.engine._sessions.get(number)
    for length in (1, 4):
        session.link.latency.observe(length, PASS / 10, PASS / 10)
    bench.engine.outgoing()
    return bench, number


def send(bench: Bench, number: int, base: int, tokens: Sequence[int], *branches: Sequence[int]) -> None:
    message = Propose(number, 0, base, tuple(tokens), branches=tuple(map(tuple, branches)))
    bench.engine.receive(b"math#1", message)


def wrong(token: int) -> int:
    return (token + 1) % VOCAB_SIZE


@pytest.mark.parametrize("late", [False, True], ids=["before the verdict", "after it"])
def test_the_branch_that_foresaw_the_verdict_is_verified_next(late: bool) -> None:
    proposal = (ANSWER[1], wrong(ANSWER[2]))
    bench, number = seated(proposal)
    branches = [(*proposal, 3, 4), (ANSWER[1], ANSWER[2], *ANSWER[3:6]), (wrong(ANSWER[1]), 7)]
    if not late:
        send(bench, number, LENGTH, proposal, *branches)
    bench.step()
    if late:
        send(bench, number, LENGTH, proposal, *branches)
    assert bench.engine.wait() == 0.0
    bench.step()
    assert [(run.proposed, run.accepted) for run in bench.runs[number][1:]] == [(2, 1), (3, 3)]
    assert bench.tokens(number) == ANSWER[:7]
    assert not [name for name in bench.engine.counts if name.startswith("dropped")]


def test_a_verdict_that_no_branch_foresaw_waits_for_the_draft() -> None:
    bench, number = seated((ANSWER[1],))
    send(bench, number, LENGTH, (ANSWER[1],), (ANSWER[1], wrong(ANSWER[2]), 3), (wrong(ANSWER[1]), 4))
    bench.step()
    [(_, commit)] = bench.engine.outgoing()
    assert isinstance(commit, Commit)
    assert commit.tokens[-2:] == ANSWER[1:3]
    assert bench.engine.wait() > 0.0
    bench.step()
    assert bench.runs[number][-1].proposed == 0


@pytest.mark.parametrize("foreseen", [False, True])
def test_a_draft_whose_answer_is_here_is_told_later_than_one_that_is_waited_for(foreseen: bool) -> None:
    """The verdict is told either way, and once."""
    bench, number = seated((ANSWER[1],))
    bench.step()
    send(bench, number, LENGTH, (ANSWER[1],), (ANSWER[1], ANSWER[2] if foreseen else wrong(ANSWER[2]), *ANSWER[3:6]))
    at_once, later = bench.engine.urgent(), bench.engine.outgoing()
    assert (len(at_once), len(later)) == ((0, 1) if foreseen else (1, 0))
    [(peer, message)] = at_once + later
    assert isinstance(message, Commit)
    assert (peer, message.tokens[-2:]) == (b"math#1", ANSWER[1:3])


def test_branches_are_for_one_verdict() -> None:
    bench, number = seated((ANSWER[1],))
    send(bench, number, LENGTH, (ANSWER[1],), (*ANSWER[1:3], wrong(ANSWER[3])), ANSWER[1:6])
    for _ in range(3):
        bench.step()
    assert [(run.proposed, run.accepted) for run in bench.runs[number][1:]] == [(1, 1), (3, 3), (0, 0)]
    assert bench.tokens(number) == ANSWER[:8]


def test_of_branches_that_fit_the_longest_is_meant() -> None:
    """A verdict shorter than the proposal fits several; the draft goes on with the longest."""
    bench, number = seated()
    bench.step()
    send(bench, number, LENGTH, ANSWER[1:4], (ANSWER[1], wrong(ANSWER[2]), 3), ANSWER[1:8])
    bench.step()
    assert [(run.proposed, run.accepted) for run in bench.runs[number][1:]] == [(0, 0), (4, 4)]


def test_what_was_foreseen_was_not_asked_for_and_is_not_waited_for() -> None:
    """Also where the draft says nothing else for many passes: no pass counts as a miss."""
    bench, number = seated(ANSWER[1:5])
    for at in range(1, 46, 5):
        send(bench, number, len(PROMPT) + at, ANSWER[at : at + 4], ANSWER[at : at + 9])
        bench.step()
        assert bench.engine.wait() == 0.0
    assert {run.proposed for run in bench.runs[number][1:]} == {4}
    bench.step()  # of its verdict no branch told
    assert bench.engine.wait() > 0.0


def test_more_that_is_asked_by_now_is_waited_for() -> None:
    bench, number = seated((ANSWER[1],))
    session = bench.engine._sessions.get(number)
    session.link.budget = session.link.budget._replace(num_tokens=1)
    bench.step()
    send(bench, number, LENGTH, (ANSWER[1],), ANSWER[1:4])
    assert session.link.budget.num_tokens > 1
    assert session.drafted == ANSWER[3:4]
    assert bench.engine.wait() > 0.0
    bench.propose(number, LENGTH + 2, ANSWER[3:7])
    assert bench.engine.wait() == 0.0
    bench.step()
    assert bench.runs[number][-1].accepted == 4


def test_branches_are_the_answer_where_that_was_lost() -> None:
    bench = Bench()
    [number] = bench.engine.open([request(60)])
    bench.step()
    send(bench, number, LENGTH, ANSWER[1:3], (*ANSWER[1:4], ANSWER[4]))
    bench.step()
    assert [run.proposed for run in bench.runs[number]] == [0, 2]


def test_branches_from_where_nothing_is_committed_are_stale() -> None:
    bench, number = seated((ANSWER[1],))
    send(bench, number, LENGTH + 1, (), (ANSWER[2],))
    assert bench.engine.counts["dropped_stale"] == 1
    bench.step()
    bench.step()
    assert [run.proposed for run in bench.runs[number]] == [0, 1, 0]


@pytest.mark.parametrize(
    ("branches", "reason"),
    [
        ([()] * (MOST_BRANCHES + 1), "too_long"),
        ([(1,) * (2 * MAX_SPECULATIVE_TOKENS + 2)], "too_long"),
        ([(1, VOCAB_SIZE)], "bad_token"),
        ([(1,), (-1, 2)], "bad_token"),
    ],
)
def test_what_no_draft_says_is_dropped(branches: list[tuple[int, ...]], reason: str) -> None:
    bench, number = seated()
    send(bench, number, LENGTH, (), *branches)
    assert bench.engine.counts[f"dropped_{reason}"] == 1


# ---- the draft


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_engine, "PAUSE", 0.0)


def said(engine: DraftEngine, passes: int = 40) -> list[Propose]:
    """What it says while it drafts."""
    messages = []
    for _ in range(passes):
        engine.step()
        messages += [message for _, message in engine.outgoing()]
    return messages


@pytest.mark.usefixtures("ahead")
def test_branches_are_sent_once_and_their_verdict_is_not_answered() -> None:
    engine = DraftEngine(ToyModel(), VOCAB_SIZE, DraftConfig(), Clock())
    engine.open(opened(request(60), 7, ahead=3), VERIFIER)
    engine.receive(VERIFIER, Commit(7, len(PROMPT), ANSWER[:1]))
    proposal, branched = said(engine)
    assert (proposal.tokens, proposal.branches) == (ANSWER[1:4], ())
    assert (branched.base, branched.tokens, branched.took) == (proposal.base, proposal.tokens, None)
    assert ANSWER[1:8] in branched.branches
    assert 1 < len(branched.branches) <= MOST_BRANCHES
    engine.receive(VERIFIER, Commit(7, LENGTH, ANSWER[1:5]))
    [branched] = said(engine)
    assert (branched.base, branched.tokens) == (LENGTH + 4, ANSWER[5:8])
    assert ANSWER[5:12] in branched.branches


@pytest.mark.usefixtures("ahead")
def test_more_than_was_foreseen_is_answered() -> None:
    engine = DraftEngine(ToyModel(), VOCAB_SIZE, DraftConfig(), Clock())
    engine.open(opened(request(60), 7), VERIFIER)
    engine.receive(VERIFIER, Commit(7, len(PROMPT), ANSWER[:1], num_tokens=1))
    assert ANSWER[1:4] in said(engine)[-1].branches
    engine.receive(VERIFIER, Commit(7, LENGTH, ANSWER[1:3], num_tokens=4))
    assert said(engine)[0].tokens == ANSWER[3:7]


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("seed", range(4))
def test_branches_drawn_in_one_call_are_those_of_one_token_at_a_time(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Lines of several lengths: each ends where no token is worth another."""

    def branches() -> tuple[tuple[int, ...], ...]:
        engine = DraftEngine(Near(), VOCAB_SIZE, DraftConfig(), Clock())
        asked = request(60, seed=seed, temperature=float(seed % 2))
        engine.open(opened(asked, 7), VERIFIER)
        engine.receive(VERIFIER, Commit(7, len(PROMPT), plain_tokens(asked)[:1], min_survival=0.3))
        return said(engine)[-1].branches

    together = branches()
    monkeypatch.setattr(LineRows, "unwarped", False)
    assert len(set(map(len, together))) > 1
    assert together == branches()


def test_a_draft_looks_ahead_once_others_have_proposed() -> None:
    clock = Clock()
    engine = DraftEngine(ToyModel(), VOCAB_SIZE, DraftConfig(first_repeat=0.24), clock)
    engine.open(opened(request(60), 7, ahead=3), VERIFIER)
    engine.receive(VERIFIER, Commit(7, len(PROMPT), ANSWER[:1]))
    assert not said(engine)[-1].branches
    assert engine.wait() == pytest.approx(PAUSE * 0.08)
    clock.now += PAUSE * 0.08
    assert said(engine)[-1].branches


@pytest.mark.usefixtures("ahead")
def test_a_draft_looks_ahead_only_where_the_verifier_leaves_it_a_core() -> None:
    engine = DraftEngine(ToyModel(), VOCAB_SIZE, DraftConfig(), Clock())
    for number, lookahead in enumerate((False, True)):
        engine.open(opened(request(60), number, ahead=3, lookahead=lookahead), VERIFIER)
        engine.receive(VERIFIER, Commit(number, len(PROMPT), ANSWER[:1]))
        assert bool(said(engine)[-1].branches) == lookahead
        engine.close(number)


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("told", [False, True])
def test_a_draft_that_was_told_not_to_look_ahead_does_not_in_new_sessions_either(told: bool) -> None:
    engine = DraftEngine(ToyModel(), VOCAB_SIZE, DraftConfig(), Clock())
    engine.open(opened(request(60), 1, ahead=3), VERIFIER)
    said(engine)
    engine.receive(VERIFIER, Commit(1, len(PROMPT), ANSWER[:1], 3, lookahead=told))
    engine.receive(VERIFIER, Commit(1, len(PROMPT) + 1, ANSWER[1:2], 0))  # nothing is to be drafted: no word on that
    engine.open(opened(request(60), 2, ahead=3), VERIFIER)
    assert any(message.branches for message in said(engine) if message.session == 2) == told


@pytest.mark.usefixtures("ahead")
def test_where_branches_were_lost_the_answer_is_repeated() -> None:
    clock = Clock()
    engine = DraftEngine(ToyModel(), VOCAB_SIZE, DraftConfig(), clock)
    engine.open(opened(request(60), 7, ahead=3), VERIFIER)
    engine.receive(VERIFIER, Commit(7, len(PROMPT), ANSWER[:1]))
    said(engine)
    engine.receive(VERIFIER, Commit(7, LENGTH, ANSWER[1:5]))
    said(engine)
    clock.now += 1.0
    assert [(message.base, message.tokens) for message in said(engine, 1)] == [(LENGTH + 4, ANSWER[5:8])]


# ---- both


def answered(monkeypatch: pytest.MonkeyPatch, share: float, *, lookahead: bool) -> Simulation:
    """An answer by a draft that takes `share` of a pass for a proposal, half a millisecond away."""
    monkeypatch.setattr(simulation, "TRIP", 0.0005)
    one, asked = Simulation(), request(600)
    number = one.generate(asked)
    draft = one.draft(share * PASS / VerifyConfig().num_speculative_tokens, Near())
    one.join(draft, number, asked, lookahead=lookahead)
    one.run()
    assert tuple(token for run in one.target.runs[number] for token in run.tokens) == plain_tokens(asked)
    return one


@pytest.mark.parametrize("share", [0.05, 0.4], ids=["light", "heavy"])
def test_the_way_to_the_draft_and_back_is_hidden_too(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    serial = answered(monkeypatch, share, lookahead=False).target
    ahead = answered(monkeypatch, share, lookahead=True).target
    waited, before = (target.engine.counts["waiting_us"] for target in (ahead, serial))
    assert waited < 0.25 * before
    saved = serial.passes[-1][1] - ahead.passes[-1][1]
    assert saved >= 0.7 * 1e-6 * before
