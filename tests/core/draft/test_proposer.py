"""Drawing in a loop: the proposals that one token at a time makes, in one call of the model each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from core.draft.engine import DraftConfig, DraftEngine
from core.draft.proposer import LineRows
from core.model.base import Rows
from core.wire.messages import Commit, Propose
from tests.core.pair import LAWS, Pair, opened
from tests.core.simulation import VERIFIER, PartlyRight
from tests.core.toy import PROMPT, VOCAB_SIZE, Clock, ToyModel, plain_tokens, request

WORTHS = (0.0, 0.1, 0.3, 0.6)
WARPS = ("presence_penalty", "frequency_penalty", "logit_bias", "top_k", "top_p", "min_p")


def looping(model: ToyModel) -> ToyModel:
    model.loops = True
    return model


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on a pass is for one token of each line."""
    return lambda: monkeypatch.setattr(LineRows, "unwarped", False)


def proposals(model: ToyModel, seed: int, worths: Sequence[float] = (0.0,)) -> list[Propose]:
    """What is proposed to a verifier that agrees with some of it, ever as many tokens and worth as much as dice say."""
    dice = Random(seed)
    engine = DraftEngine(model, VOCAB_SIZE, DraftConfig(), Clock())
    asked = request(200, seed=seed, temperature=float(seed % 2))
    answer = plain_tokens(asked)
    engine.open(opened(asked, ahead=8, lookahead=False), VERIFIER)
    said: list[Propose] = []
    known = 0
    while known < 180:
        while engine.drafting:
            engine.step()
        said += [message for _, message in engine.outgoing()]
        new = answer[known : known + dice.randint(1, 6)]
        engine.receive(VERIFIER, Commit(1, len(PROMPT) + known, new, dice.randint(1, 8), dice.choice(worths)))
        known += len(new)
    return said


@pytest.mark.parametrize("make", [ToyModel, lambda: PartlyRight(4), lambda: ToyModel(salt=1)])
@pytest.mark.parametrize("seed", range(4))
def test_the_proposals_are_those_of_one_token_at_a_time(
    make: Callable[[], ToyModel], seed: int, single: Callable[[], None]
) -> None:
    looped, until_done = proposals(looping(make()), seed), proposals(make(), seed)
    single()
    assert looped == until_done == proposals(make(), seed)


@pytest.mark.parametrize("make", [ToyModel, lambda: PartlyRight(4), lambda: ToyModel(salt=1)])
@pytest.mark.parametrize("seed", range(4))
def test_a_draw_of_many_tokens_ends_where_one_token_at_a_time_does(
    make: Callable[[], ToyModel], seed: int, single: Callable[[], None]
) -> None:
    """Where no token is worth another. A model that loops draws on, and so learns more of how sure it may be."""

    def drafted(worths: Sequence[float]) -> tuple[list[Propose], list[list[Rows]]]:
        fed: list[list[Rows]] = []
        model = make()
        model.on_forward = lambda batch: fed.append(list(batch))
        return proposals(model, seed, worths), fed

    free, until_ended = drafted((0.0,)), drafted(WORTHS)
    single()
    assert until_ended == drafted(WORTHS)
    assert len(until_ended[1]) < len(free[1])


def test_what_is_complete_is_not_drafted_on_beside_what_is_not() -> None:
    engine = DraftEngine(model := ToyModel(), VOCAB_SIZE, DraftConfig(), Clock())
    for number, ahead in ((1, 2), (2, 5)):
        engine.open(opened(request(200), number, ahead=ahead, lookahead=False), VERIFIER)
    fed: list[int] = []
    model.on_forward = lambda batch: fed.append(len(batch))
    engine.step()
    [(_, first)] = engine.outgoing()
    assert (first.session, len(first.tokens)) == (1, 2)
    engine.step()
    [(_, second)] = engine.outgoing()
    assert (second.session, len(second.tokens)) == (2, 5)
    assert fed == [2, 2, 1, 1, 1]


def test_a_warped_session_waits_for_no_other() -> None:
    engine = DraftEngine(ToyModel(), VOCAB_SIZE, DraftConfig(), Clock())
    warped = request(200)
    warped = msgspec.structs.replace(warped, params=msgspec.structs.replace(warped.params, top_p=0.9))
    engine.open(opened(request(200), 1, ahead=8, lookahead=False), VERIFIER)
    engine.open(opened(warped, 2, ahead=1, lookahead=False), VERIFIER)
    engine.step()
    assert [message.session for _, message in engine.outgoing()] == [2]


@pytest.mark.parametrize("law", LAWS)
def test_a_looping_draft_equal_to_the_target_is_always_right(law: dict[str, Any]) -> None:
    pair = Pair(looping(ToyModel()))
    asked = [request(60, seed=seed, choice=seed % 2) for seed in range(6)]
    pair.generate([msgspec.structs.replace(one, params=msgspec.structs.replace(one.params, **law)) for one in asked])
    counts, drafted = pair.verifier.counts, pair.draft.counts
    assert counts["accepted"] == counts["proposed"] > 6 * 60 * 0.7
    # one call of the model for a round of all six, or where a warp is on, one for every token of it
    assert (drafted["steps"] < 60 / 4) == law.keys().isdisjoint(WARPS)
    assert pair.model.cached == {}


def test_sessions_with_a_warp_and_without_are_drafted_side_by_side() -> None:
    pair = Pair(looping(PartlyRight(5)))
    asked = [request(60, seed=seed) for seed in range(6)]
    params = [msgspec.structs.replace(one.params, **LAWS[index]) for index, one in enumerate(asked)]
    pair.generate([msgspec.structs.replace(one, params=own) for one, own in zip(asked, params, strict=True)])
    assert 0.4 < pair.verifier.counts["accepted"] / pair.verifier.counts["proposed"] < 0.95
    assert pair.model.cached == {}


@pytest.mark.parametrize("context", [12, 16, 33])
def test_no_loop_leaves_the_context(context: int) -> None:
    short = looping(PartlyRight(3))
    short.context = context
    pair = Pair(short, DraftConfig(prefill_chunk=7))
    pair.generate([request(200, seed=seed) for seed in range(3)], ahead=10)
    assert pair.verifier.counts["accepted"] > 100
