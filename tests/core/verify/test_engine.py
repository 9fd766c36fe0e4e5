"""The verify engine: one prefill for all choices, queueing, ends of every kind, and nothing left behind."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from core.errors import ConfigError, InvalidRequest
from core.generation import GenerationRequest, Run
from core.sampling.params import SamplingParams
from core.verify.engine import VerifyConfig, VerifyEngine
from core.verify.sources import DRAFTS_ALONE
from core.wire.messages import Close
from tests.core.toy import PROMPT, VOCAB_SIZE, ToyModel, ToyVocabulary, plain_tokens, request
from tests.core.verify.bench import Bench


def choices(n: int, max_tokens: int = 20) -> list[GenerationRequest]:
    return [request(max_tokens, choice=choice) for choice in range(n)]


def resumed(asked: GenerationRequest, generated: Sequence[int]) -> GenerationRequest:
    return msgspec.structs.replace(asked, tokens=(*asked.tokens, *generated))


# ---- choices of one prompt


def test_the_prompt_of_n_choices_is_computed_once() -> None:
    bench = Bench(VerifyConfig(lookup=DRAFTS_ALONE))
    numbers = bench.engine.open(choices(3))
    bench.step()
    assert [[len(rows.tokens) for rows in batch] for batch in bench.passes] == [[len(PROMPT)]]
    bench.finish()
    assert sum(len(rows.tokens) for batch in bench.passes for rows in batch) == len(PROMPT) + 3 * 19
    for number, asked in zip(numbers, choices(3), strict=True):
        assert bench.tokens(number) == plain_tokens(asked)
    assert len({bench.tokens(number) for number in numbers}) == 3


def test_choice_0_of_two_is_the_answer_of_one() -> None:
    bench = Bench()
    first, _ = bench.engine.open(choices(2))
    bench.finish()
    assert bench.tokens(first) == plain_tokens(request(20))


@pytest.mark.parametrize("admitted", [False, True])
def test_when_the_leader_leaves_during_prefill_one_of_the_others_leads(admitted: bool) -> None:
    bench = Bench(VerifyConfig(prefill_chunk=2, lookup=DRAFTS_ALONE))
    leader, second, third = bench.engine.open(choices(3))
    if admitted:
        bench.step()
    bench.engine.close(leader)
    bench.finish()
    assert bench.tokens(second) == plain_tokens(choices(3)[1])
    assert bench.tokens(third) == plain_tokens(choices(3)[2])
    computed = sum(len(rows.tokens) for batch in bench.passes for rows in batch)
    assert computed == (2 if admitted else 0) + len(PROMPT) + 2 * 19
    assert bench.model.cached == {}


def test_a_follower_that_leaves_during_prefill_is_not_computed() -> None:
    bench = Bench(VerifyConfig(prefill_chunk=2))
    leader, follower = bench.engine.open(choices(2))
    bench.step()
    bench.engine.close(follower)
    bench.finish()
    assert bench.tokens(leader) == plain_tokens(request(20))
    assert bench.tokens(follower) == ()


def test_choices_resumed_at_different_lengths_each_go_on() -> None:
    bench = Bench()
    answers = [plain_tokens(asked) for asked in choices(4)]
    known = [7, 0, 0, 20]
    asked = [resumed(asked, answer[:n]) for asked, answer, n in zip(choices(4), answers, known, strict=True)]
    numbers = bench.engine.open(asked)
    bench.finish()
    assert [bench.tokens(number) for number in numbers] == [a[n:] for a, n in zip(answers, known, strict=True)]
    assert bench.runs[numbers[3]] == [Run((), finish_reason="length")]


def test_choices_resumed_when_complete_with_equal_tokens_get_none_beyond() -> None:
    asked = [request(6, choice=choice, temperature=0.0) for choice in range(3)]
    answer = plain_tokens(asked[0])
    bench = Bench()
    numbers = bench.engine.open([resumed(one, answer) for one in asked])
    bench.finish()
    assert [bench.runs[number] for number in numbers] == [[Run((), finish_reason="length")]] * 3
    assert bench.passes == []


# ---- queueing


def test_sessions_beyond_the_limit_wait_their_turn_in_order() -> None:
    bench = Bench(VerifyConfig(max_sessions=2))
    numbers = [bench.engine.open([request(3, seed=seed)])[0] for seed in range(5)]
    order: list[int] = []
    while bench.sessions:
        bench.step()
        assert len(bench.passes[-1]) <= 2
        order += [number for number in bench.runs if number not in order]
    assert order == numbers


def test_a_group_waits_until_all_of_it_fits_and_is_not_overtaken() -> None:
    bench = Bench(VerifyConfig(max_sessions=3))
    [alone] = bench.engine.open([request(4)])
    group = bench.engine.open(choices(3, max_tokens=2))
    [last] = bench.engine.open([request(2, seed=9)])
    for _ in range(4):
        bench.step()
        assert set(bench.runs) == {alone}
    bench.step()
    assert set(bench.runs) == {alone, *group}
    bench.finish()
    assert bench.tokens(last) == plain_tokens(request(2, seed=9))


def test_a_queued_session_may_be_closed() -> None:
    bench = Bench(VerifyConfig(max_sessions=1))
    [first] = bench.engine.open([request(3)])
    [second] = bench.engine.open([request(3, seed=8)])
    [third] = bench.engine.open([request(3, seed=9)])
    bench.engine.close(second)
    bench.finish()
    assert set(bench.runs) == {first, third}


def test_more_choices_than_ever_run_together_are_refused() -> None:
    bench = Bench(VerifyConfig(max_sessions=2))
    with pytest.raises(InvalidRequest, match="at most 2"):
        bench.engine.open(choices(3))
    assert bench.engine.wait() is None


# ---- prefill


def test_a_long_prompt_is_computed_in_chunks_beside_running_sessions() -> None:
    bench = Bench(VerifyConfig(prefill_chunk=16))
    [running] = bench.engine.open([request(40)])
    bench.step()
    prompt = tuple(Random(1).choices(range(VOCAB_SIZE), k=100))
    [long] = bench.engine.open([request(5, tokens=prompt)])
    for done in range(1, 8):
        bench.step()
        assert len(bench.runs[running]) == 1 + done
        assert max(len(rows.tokens) for rows in bench.passes[-1]) == min(16, 100 - 16 * (done - 1))
    bench.finish()
    assert bench.tokens(long) == plain_tokens(request(5, tokens=prompt))


def test_prompts_share_the_chunk_of_a_pass() -> None:
    bench = Bench(VerifyConfig(prefill_chunk=8))
    for seed in range(3):
        bench.engine.open([request(2, seed=seed)])
    bench.step()
    assert [len(rows.tokens) for rows in bench.passes[0]] == [5, 3]
    bench.step()
    assert [len(rows.tokens) for rows in bench.passes[1]] == [1, 2, 5]


# ---- ends


@pytest.mark.parametrize("known", [0, 1, 7, 19])
def test_an_answer_resumed_from_a_part_goes_on_with_the_same_tokens(known: int) -> None:
    answer = plain_tokens(request(20))
    bench = Bench()
    [number] = bench.engine.open([resumed(request(20), answer[:known])])
    bench.finish()
    assert answer[:known] + bench.tokens(number) == answer
    assert bench.runs[number][-1].finish_reason == "length"


@pytest.mark.parametrize(
    ("generated", "context", "eos", "reason"),
    [(20, 4096, (), "length"), (12, len(PROMPT) + 12, (), "length"), (6, 4096, None, "stop")],
)
def test_an_answer_resumed_when_complete_is_only_told_so(
    generated: int, context: int, eos: tuple[int, ...] | None, reason: str
) -> None:
    answer = plain_tokens(request(20))[:generated]
    bench = Bench(context=context, eos_ids=answer[-1:] if eos is None else eos)
    [number] = bench.engine.open([resumed(request(20), answer)])
    assert bench.engine.wait() == 0.0
    bench.step()
    assert bench.runs[number] == [Run((), finish_reason=reason)]
    assert bench.passes == []
    assert (bench.sessions, bench.model.cached, bench.engine.wait()) == (0, {}, None)


def test_a_prompt_that_leaves_room_for_one_token_gets_one() -> None:
    bench = Bench(context=len(PROMPT) + 1)
    [number] = bench.engine.open([request(20)])
    bench.finish()
    assert bench.tokens(number) == plain_tokens(request(20))[:1]
    assert bench.runs[number][-1].finish_reason == "length"


def test_max_tokens_1_is_one_token_whatever_is_proposed() -> None:
    bench = Bench()
    [number] = bench.engine.open([request(1)])
    bench.propose(number, len(PROMPT), plain_tokens(request(4)))
    bench.finish()
    assert bench.runs[number] == [Run(plain_tokens(request(1)), finish_reason="length")]


def test_eos_ends_the_answer_and_the_rest_of_the_run_is_dropped() -> None:
    answer = plain_tokens(request(20))
    eos = next(token for token in answer[3:] if token not in answer[:3])
    end = answer.index(eos) + 1
    bench = Bench(eos_ids=[eos])
    [number] = bench.engine.open([request(20)])
    bench.step()
    bench.propose(number, len(PROMPT), answer[: end + 2])
    bench.finish()
    assert bench.tokens(number) == answer[:end]
    assert bench.runs[number][-1].finish_reason == "stop"


BAD = [
    ("prompt", {"tokens": (), "prompt_length": 0}),
    ("prompt", {"prompt_length": 0}),
    ("prompt", {"prompt_length": len(PROMPT) + 1}),
    ("prompt", {"tokens": (1,) * 64, "prompt_length": 64}),
    ("prompt", {"tokens": (*PROMPT, *(1,) * 60)}),
    ("prompt", {"tokens": (1, VOCAB_SIZE), "prompt_length": 2}),
    ("prompt", {"tokens": (-1, 1), "prompt_length": 2}),
    ("temperature", {"params": SamplingParams(seed=0, max_tokens=1, temperature=float("nan"))}),
    ("max_tokens", {"params": SamplingParams(seed=0, max_tokens=0)}),
    ("logit_bias", {"params": SamplingParams(seed=0, max_tokens=1, logit_bias={VOCAB_SIZE: 1.0})}),
]


@pytest.mark.parametrize(("field", "changes"), BAD)
def test_a_request_that_cannot_be_answered_leaves_the_engine_as_it_was(field: str, changes: dict[str, object]) -> None:
    bench = Bench(context=64)
    with pytest.raises(InvalidRequest) as refused:
        bench.engine.open([request(5), msgspec.structs.replace(request(5), **changes)])
    assert refused.value.field == field
    assert (bench.sessions, bench.model.cached, bench.engine.wait()) == (0, {}, None)


# ---- coming and going


def test_a_closed_session_is_gone_and_its_draft_is_told() -> None:
    bench = Bench()
    [number] = bench.engine.open([request(20)])
    bench.propose(number, len(PROMPT), (1, 2), epoch=4)
    bench.step()
    bench.engine.outgoing()
    bench.engine.close(number)
    bench.engine.close(number)
    assert bench.engine.outgoing() == [(b"math#1", Close(number, 4))]
    assert (bench.sessions, bench.model.cached, bench.engine.step()) == (0, {}, [])


def test_random_arrivals_and_departures_leave_nothing_behind() -> None:
    random = Random(4)
    bench = Bench(VerifyConfig(max_sessions=6, prefill_chunk=7))
    asked: dict[int, GenerationRequest] = {}
    closed: set[int] = set()
    for _ in range(1000):
        n = random.choice([1, 1, 1, 2, 3])
        prompt = random.choices(range(VOCAB_SIZE), k=random.randint(1, 20))
        group = [request(random.randint(1, 9), tokens=prompt, choice=choice) for choice in range(n)]
        asked |= dict(zip(bench.engine.open(group), group, strict=True))
        for number in random.sample(list(asked), min(len(asked), 2)):
            proposed = random.choices(range(VOCAB_SIZE), k=random.randint(0, 5))
            bench.propose(number, random.randint(0, 20), proposed, random.randint(0, 2))
        for number in random.sample(list(asked)[-20:], min(len(asked), 2)):
            bench.engine.close(number)
            closed.add(number)
        for _ in range(random.randint(0, 4)):
            bench.step()
        bench.engine.outgoing()
        assert len(bench.model.cached) <= 6
    bench.finish()
    assert (bench.model.cached, bench.engine.wait()) == ({}, None)
    answered = 0
    for number in [*asked][::10]:
        answer = plain_tokens(asked[number])
        answered += bench.tokens(number) == answer
        assert bench.tokens(number) == answer[: len(bench.tokens(number))]
        assert number in closed or bench.tokens(number) == answer
    assert answered > 20


def test_a_tokenizer_with_ids_that_the_target_lacks_is_refused() -> None:
    vocabulary = ToyVocabulary()
    vocabulary.num_valid = VOCAB_SIZE + 1
    with pytest.raises(ConfigError, match=f"{VOCAB_SIZE + 1} ids"):
        VerifyEngine(ToyModel(), vocabulary, VerifyConfig(), lambda: 0.0)
