"""The verify engine computes a beginning once: system prompts, turns of a chat, and never a token that was proposed."""

from __future__ import annotations

from random import Random

import pytest

from core.generation import GenerationRequest
from core.verify.engine import VerifyConfig
from core.verify.sources import DRAFTS_ALONE
from tests.core.toy import VOCAB_SIZE, plain_tokens, request
from tests.core.verify.bench import Bench


def text(length: int, seed: int = 0) -> list[int]:
    return Random(seed).choices(range(VOCAB_SIZE), k=length)


def asked(tokens: list[int], max_tokens: int = 5, seed: int = 3, choice: int = 0) -> GenerationRequest:
    return request(max_tokens, tokens=tokens, seed=seed, choice=choice)


def answered(bench: Bench, one: GenerationRequest) -> tuple[int, ...]:
    """The answer of a session alone, checked against that of an engine that remembers nothing."""
    [number] = bench.engine.open([one])
    bench.finish()
    assert bench.tokens(number) == plain_tokens(one)
    return bench.tokens(number)


SYSTEM = text(150)


def test_a_system_prompt_is_computed_once() -> None:
    bench = Bench(VerifyConfig(lookup=DRAFTS_ALONE))
    for user in range(4):
        before = bench.computed
        answered(bench, asked(SYSTEM + text(20, seed=user + 1)))
        assert bench.computed - before == 170 - (128 if user else 0) + 4
    assert bench.engine.counts["prompt_tokens"] == 4 * 170
    assert bench.engine.counts["prefix_hit_tokens"] == 3 * 128


def test_the_next_turn_of_a_chat_begins_where_the_last_one_ended() -> None:
    bench = Bench()
    chat = list(SYSTEM)
    for turn in range(3):
        held = len(chat) - 1  # the last token of an answer is drawn, but not fed
        chat += text(30, seed=turn + 1)
        before = bench.engine.counts["prefix_hit_tokens"]
        chat += answered(bench, asked(chat, max_tokens=70))
        assert bench.engine.counts["prefix_hit_tokens"] - before == (held // 64 * 64 if turn else 0)


@pytest.mark.parametrize("chunk", [16, 64, 100, 1000])
def test_requests_that_come_at_once_do_not_compute_the_same_beside_each_other(chunk: int) -> None:
    bench = Bench(VerifyConfig(prefill_chunk=chunk, lookup=DRAFTS_ALONE))
    group = [asked(SYSTEM + text(20, seed=user + 1)) for user in range(4)]
    numbers = [bench.engine.open([one])[0] for one in group]
    bench.finish()
    assert [bench.tokens(number) for number in numbers] == [plain_tokens(one) for one in group]
    # with room for all in one pass, all are computed in it
    assert (bench.computed == 4 * 174) == (chunk == 1000)
    assert chunk > 100 or bench.computed <= 4 * 174 - 3 * 64
    assert bench.engine.gauges()["pages"] == 0


def test_choices_of_a_remembered_prompt() -> None:
    bench = Bench()
    prompt = text(129)
    answered(bench, asked(prompt))
    before = bench.computed
    group = [asked(prompt, choice=choice) for choice in range(3)]
    numbers = bench.engine.open(group)
    bench.propose(numbers[0], len(prompt), plain_tokens(group[0])[:3])
    bench.step()
    # one row computes the prompt's last token for all three; the proposals are for one of them, and wait
    assert bench.computed - before == 1
    bench.finish()
    assert [bench.tokens(number) for number in numbers] == [plain_tokens(one) for one in group]


def test_an_answer_taken_up_again_finds_what_was_computed_for_it() -> None:
    bench = Bench(VerifyConfig(lookup=DRAFTS_ALONE))
    one = asked(SYSTEM, max_tokens=100)
    answer = plain_tokens(one)
    [number] = bench.engine.open([one])
    for _ in range(50):
        bench.step()
    bench.engine.close(number)
    before = bench.computed
    [again] = bench.engine.open(
        [GenerationRequest(tokens=(*SYSTEM, *answer[:50]), prompt_length=len(SYSTEM), params=one.params)]
    )
    bench.finish()
    assert answer[:50] + bench.tokens(again) == answer
    assert bench.computed - before == 200 - 192 + 49


def test_a_prompt_left_half_computed_is_found_as_far_as_it_was() -> None:
    bench = Bench(VerifyConfig(prefill_chunk=50))
    [number] = bench.engine.open([asked(SYSTEM)])
    bench.step()
    bench.step()
    bench.engine.close(number)
    before = bench.computed
    answered(bench, asked(SYSTEM))
    assert bench.computed - before == 150 - 64 + 4


def test_proposals_that_were_not_accepted_are_never_found() -> None:
    """Pages fill up with wrong proposals again and again; a prompt that ends in them is computed by itself."""
    prompt = text(60)
    for right in range(8):
        bench = Bench()
        one = asked(prompt, max_tokens=20)
        answer = plain_tokens(one)
        [number] = bench.engine.open([one])
        bench.step()
        wrong = [(answer[1 + right] + 1) % VOCAB_SIZE, *text(8 - right)]
        proposal = [*answer[1 : 1 + right], *wrong][:4]
        bench.propose(number, len(prompt) + 1, proposal)
        bench.step()
        answered(bench, asked([*prompt, answer[0], *proposal, *text(20)]))
        answered(bench, asked([*prompt, *answer, *text(20)]))


def test_what_is_remembered_gives_way_to_what_is_asked() -> None:
    bench = Bench(num_pages=64)
    for seed in range(40):
        answered(bench, asked(text(300, seed=seed), max_tokens=2))
    gauges = bench.engine.gauges()
    assert (gauges["pages"], gauges["remembered_pages"]) == (0, 63)  # the last tokens filled no page
    before = bench.engine.counts["prefix_hit_tokens"]
    answered(bench, asked(text(300, seed=39), max_tokens=2))
    assert bench.engine.counts["prefix_hit_tokens"] == before + 256
    before = bench.engine.counts["prefix_hit_tokens"]
    for seed in range(20):
        answered(bench, asked(text(300, seed=seed), max_tokens=2))
    assert bench.engine.counts["prefix_hit_tokens"] < before + 20 * 128
    assert bench.engine.counts["preemptions"] == 0
