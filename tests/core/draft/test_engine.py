"""The draft engine: the target's own law, sessions of many kinds at once, short contexts, bad commits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from core.draft.engine import DraftConfig
from core.model.base import Rows
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.messages import Close, Commit, Propose
from tests.core.draft.bench import draft, drafted
from tests.core.pair import LAWS, Pair, opened
from tests.core.simulation import VERIFIER, PartlyRight
from tests.core.toy import PROMPT, VOCAB_SIZE, Clock, ToyModel, ToyVocabulary, request

# ---- the same law


@pytest.mark.parametrize("law", LAWS)
def test_a_draft_equal_to_the_target_is_always_right(law: dict[str, Any]) -> None:
    pair = Pair(ToyModel())
    asked = [request(60, seed=seed, choice=seed % 2) for seed in range(6)]
    pair.generate([msgspec.structs.replace(one, params=msgspec.structs.replace(one.params, **law)) for one in asked])
    counts = pair.verifier.counts
    assert counts["accepted"] == counts["proposed"] > 6 * 60 * 0.7
    assert pair.draft.gauges()["sessions"] == 0
    assert pair.model.cached == {}


def test_penalties_count_what_was_committed_before_the_draft_joined() -> None:
    asked = request(60)
    params = msgspec.structs.replace(asked.params, presence_penalty=2.0, frequency_penalty=2.0, temperature=0.0)
    asked = msgspec.structs.replace(asked, params=params)
    verifier = VerifyEngine(ToyModel(), ToyVocabulary(), VerifyConfig(), Clock())
    verifier.open([asked])
    answer = [token for _ in range(60) for _, run in verifier.step() for token in run.tokens]
    engine, _, _ = draft()
    engine.open(opened(asked, tokens=(*PROMPT, *answer[:30]), ahead=8), VERIFIER)
    assert drafted(engine) == [Propose(1, 0, len(PROMPT) + 30, tuple(answer[30:38]))]


def test_many_sessions_are_drafted_in_one_pass() -> None:
    engine, model, _ = draft()
    batches: list[int] = []
    model.on_forward = lambda batch: batches.append(len(batch))
    for session in range(5):
        engine.open(opened(request(20, seed=session), session, ahead=session), VERIFIER)
    assert [len(proposal.tokens) for proposal in drafted(engine)] == [0, 1, 2, 3, 4]
    assert batches == [4, 3, 2, 1]


def test_sessions_count_as_asked_until_a_verifier_wants_no_tokens_and_again_once_it_does() -> None:
    engine, _, _ = draft()
    for session in (1, 2):
        engine.open(opened(request(60), session, ahead=4), VERIFIER)
    assert engine.gauges()["asked_sessions"] == 2
    [first, _] = drafted(engine)
    engine.receive(VERIFIER, Commit(1, first.base, first.tokens, num_tokens=0))
    assert (engine.gauges()["sessions"], engine.gauges()["asked_sessions"]) == (2, 1)
    engine.receive(VERIFIER, Commit(1, first.base, first.tokens, num_tokens=2))
    assert engine.gauges()["asked_sessions"] == 2


def test_a_partly_right_draft_beside_others_is_cut_back_and_goes_on() -> None:
    pair = Pair(PartlyRight(3))
    pair.generate([request(80, seed=seed) for seed in range(5)])
    counts = pair.verifier.counts
    assert 0.3 < counts["accepted"] / counts["proposed"] < 0.9
    assert pair.model.cached == {}


def test_no_more_is_drafted_than_the_answer_may_still_get() -> None:
    engine, _, _ = draft()
    engine.open(opened(request(3), ahead=16), VERIFIER)
    [proposal] = drafted(engine)
    assert len(proposal.tokens) == 2
    engine.receive(VERIFIER, Commit(1, len(PROMPT), proposal.tokens))
    assert drafted(engine) == [Propose(1, 0, len(PROMPT) + 2, (), 0.0)]


def test_an_answer_says_how_long_it_took_unless_it_was_foreseen() -> None:
    engine, model, clock = draft()

    def take_time(_: Sequence[Rows]) -> None:
        clock.now += 0.001

    model.on_forward = take_time
    engine.open(opened(request(40), ahead=4), VERIFIER)
    [first] = drafted(engine)
    assert first.took is None, "nothing was committed yet"
    clock.now += 7.0
    engine.receive(VERIFIER, Commit(1, first.base, first.tokens))
    [second] = drafted(engine)
    assert second.took == pytest.approx(0.004)
    engine.receive(VERIFIER, Commit(1, second.base, second.tokens[:2]))
    [third] = drafted(engine)
    assert third.took is None, "two of its tokens were there"


# ---- a context shorter than the target's


@pytest.mark.parametrize("context", [16, 20, 33])
@pytest.mark.parametrize("model", [ToyModel, partial(PartlyRight, 3)], ids=["right", "partly"])
def test_a_draft_with_a_short_context_keeps_the_last_half_and_goes_on(context: int, model: Any) -> None:
    short = model()
    short.context = context
    pair = Pair(short, DraftConfig(prefill_chunk=7))
    pair.generate([request(200, seed=seed) for seed in range(3)])
    counts = pair.verifier.counts
    assert counts["accepted"] / counts["proposed"] > (0.99 if model is ToyModel else 0.3)


def test_a_chain_longer_than_half_the_context_may_be_cut_anywhere() -> None:
    short = PartlyRight(2)
    short.context = 12
    pair = Pair(short)
    pair.generate([request(300, seed=seed) for seed in range(4)], ahead=10)
    assert pair.verifier.counts["accepted"] > 100


def test_a_prompt_longer_than_the_context_is_drafted_from_its_end() -> None:
    engine, model, _ = draft(context=16)
    prompt = Random(2).choices(range(VOCAB_SIZE), k=50)
    whole, _, _ = draft()
    for one in (engine, whole):
        one.open(opened(request(20, tokens=prompt)), VERIFIER)
    assert drafted(engine) == drafted(whole)
    assert len(model.cached[1]) <= 16


# ---- beginnings that others had


def test_a_prompt_that_another_session_had_is_not_computed_again() -> None:
    engine, model, _ = draft()
    computed: list[int] = []
    model.on_forward = lambda batch: computed.append(sum(len(rows.tokens) for rows in batch))
    asked = request(20, tokens=[number % VOCAB_SIZE for number in range(200)])
    engine.open(opened(asked), VERIFIER)
    [first] = drafted(engine)
    assert sum(computed) == 200 + 3
    engine.close(1)
    assert engine.gauges() == {
        "sessions": 0,
        "asked_sessions": 0,
        "pages": 0,
        "free_pages": model.num_free_pages,
        "remembered_pages": 3,
    }
    computed.clear()
    engine.open(opened(asked, 2), VERIFIER)
    [second] = drafted(engine)
    assert (second.tokens, sum(computed)) == (first.tokens, 200 - 192 + 3)


def test_a_chain_that_was_not_committed_is_never_found() -> None:
    engine, model, _ = draft()
    asked = request(40, tokens=PROMPT * 12)
    engine.open(opened(asked, ahead=16), VERIFIER)
    [proposal] = drafted(engine, passes=20)
    assert model.num_cached(1) > 64
    computed: list[int] = []
    model.on_forward = lambda batch: computed.append(sum(len(rows.tokens) for rows in batch))
    engine.open(opened(request(40, tokens=(*asked.tokens, *proposal.tokens)), 2), VERIFIER)
    drafted(engine, passes=1)
    assert computed[0] == 60 + 16


def test_a_draft_that_keeps_only_the_last_part_leaves_nothing_to_be_found() -> None:
    tokens = Random(1).choices(range(VOCAB_SIZE), k=300)
    engine, model, _ = draft(context=200)
    engine.open(opened(request(40, tokens=tokens)), VERIFIER)
    drafted(engine)
    assert model.num_used_pages == 2
    engine.close(1)
    assert model.num_prefix_pages == 0


# ---- what verifiers may say


@pytest.mark.parametrize(
    "commit",
    [
        Commit(1, -1, (1, 2)),
        Commit(1, len(PROMPT), (VOCAB_SIZE,)),
        Commit(1, len(PROMPT), (-1,)),
        Commit(1, len(PROMPT) + 1, (1, 2)),
        Commit(1, 2**62, ()),
        Commit(2, len(PROMPT), (1,)),
    ],
)
def test_a_commit_that_cannot_be_is_dropped(commit: Commit) -> None:
    engine, _, _ = draft()
    engine.open(opened(request(20)), VERIFIER)
    [proposal] = drafted(engine)
    assert engine.receive(VERIFIER, commit) is None
    assert all(message == proposal for message in drafted(engine))


def test_another_verifier_has_no_say() -> None:
    engine, _, _ = draft()
    engine.open(opened(request(20)), VERIFIER)
    assert engine.receive(b"stranger", Close(1, 9)) is None
    assert engine.gauges()["sessions"] == 1


def test_a_close_ends_its_own_seat_and_those_before() -> None:
    engine, model, _ = draft()
    engine.open(opened(request(20), epoch=2), VERIFIER)
    assert engine.receive(VERIFIER, Close(1, 1)) is None
    assert engine.receive(VERIFIER, Close(1, 2)) == 1
    assert (model.cached, engine.receive(VERIFIER, Close(1, 2))) == ({}, None)


def test_a_session_opened_again_starts_afresh() -> None:
    engine, model, _ = draft()
    engine.open(opened(request(20)), VERIFIER)
    [first] = drafted(engine)
    engine.open(opened(request(20), tokens=(*PROMPT, *first.tokens), epoch=1), VERIFIER)
    [second] = drafted(engine)
    assert (second.epoch, second.base) == (1, len(PROMPT) + 4)
    assert list(model.cached) == [1]
