"""When pages run out: who waits, who gives way, who goes on, and that nobody's answer changes."""

from __future__ import annotations

from functools import cache
from random import Random

import msgspec
import pytest

from core.errors import OutOfPages
from core.generation import GenerationRequest
from core.verify.engine import VerifyConfig
from core.wire.messages import Commit
from tests.core.toy import VOCAB_SIZE, plain_tokens, request
from tests.core.verify.bench import Bench

CONTEXT = 256
FEW = CONTEXT // 64  # pages: one whole context


def asked(length: int, max_tokens: int, seed: int = 0, **law: float) -> GenerationRequest:
    prompt = Random(seed).choices(range(VOCAB_SIZE), k=length)
    return request(max_tokens, tokens=prompt, seed=seed, **law)


def bench(num_pages: int = FEW, **limits: int) -> Bench:
    return Bench(VerifyConfig(**limits), context=CONTEXT, num_pages=num_pages)


def fed(bench: Bench) -> list[int]:
    """Sessions of the last pass."""
    return [rows.session for rows in bench.passes[-1]]


def until_preempted(bench: Bench) -> None:
    while bench.engine.counts["preemptions"] == 0:
        assert bench.sessions
        bench.step()


# ---- the same tokens


@cache
def asked_and_answered(temperature: float) -> list[list[tuple[GenerationRequest, tuple[int, ...]]]]:
    """Groups of choices with their answers; prompts end before, at and behind the end of a page."""
    groups = []
    for seed, length in enumerate([1, 63, 150, 64, 65]):
        one = asked(length, 70 + 10 * seed, seed, temperature=temperature)
        group = [msgspec.structs.replace(one, choice=choice) for choice in range(3 if seed % 2 else 1)]
        groups.append([(one, plain_tokens(one, context=CONTEXT)) for one in group])
    return groups


@pytest.mark.parametrize("num_pages", [FEW, 6])
@pytest.mark.parametrize("drafted", ["nothing", "what is right", "what is half wrong"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_are_those_of_plenty_of_room(temperature: float, drafted: str, num_pages: int) -> None:
    random = Random(1)
    short = bench(num_pages, max_sessions=8, prefill_chunk=50)
    wanted: dict[int, tuple[GenerationRequest, tuple[int, ...]]] = {}
    for group in asked_and_answered(temperature):
        wanted |= dict(zip(short.engine.open([one for one, _ in group]), group, strict=True))
    while short.sessions:
        for number in random.sample(list(wanted), 4) if drafted != "nothing" else []:
            (one, answer), known = wanted[number], len(short.tokens(number))
            run = list(answer[known : known + random.randint(0, 6)])
            if run and drafted == "what is half wrong" and random.random() < 0.5:
                run[random.randrange(len(run))] = random.randrange(VOCAB_SIZE)
            short.propose(number, one.prompt_length + known, run)
        short.step()
        short.engine.outgoing()
    assert all(short.tokens(number) == answer for number, (_, answer) in wanted.items())
    counts = short.engine.counts
    assert counts["preemptions"] > 0
    assert (counts["accepted_draft"] > 0) == (drafted != "nothing")
    assert (counts["accepted_draft"] < counts["proposed_draft"]) == (drafted == "what is half wrong")
    assert (short.model.cached, short.engine.gauges()["pages"]) == ({}, 0)


def test_choices_that_do_not_fit_beside_each_other_are_answered_one_after_another() -> None:
    short = bench()
    group = [msgspec.structs.replace(asked(150, 100), choice=choice) for choice in range(4)]
    numbers = short.engine.open(group)
    short.finish()
    assert [short.tokens(number) for number in numbers] == [plain_tokens(one, context=CONTEXT) for one in group]
    assert short.engine.counts["preemptions"] > 0


def test_those_who_wait_for_a_prompt_give_way_with_the_one_that_computes_it() -> None:
    short = bench(5, prefill_chunk=16)
    first = asked(60, 100)
    [oldest] = short.engine.open([first])
    while len(short.tokens(oldest)) < 2:
        short.step()
    group = [msgspec.structs.replace(asked(100, 20, seed=1), choice=choice) for choice in range(2)]
    numbers = short.engine.open(group)
    late = asked(100, 20, seed=2)
    short.step()
    assert fed(short) == [oldest, numbers[0]]
    # pages are gone before the prompt is computed: another takes what is free
    taken = short.model.num_free_pages
    short.model.open(-1)
    short.model._pool.extend([(-1, 64 * taken)])
    until_preempted(short)
    assert fed(short) == [oldest]
    short.model.close(-1)
    [last] = short.engine.open([late])
    gauges = short.engine.gauges()
    assert (gauges["sessions"], gauges["waiting_sessions"]) == (4, 3)
    assert gauges["pages"] + gauges["free_pages"] == 5
    short.finish()
    assert [short.tokens(number) for number in numbers] == [plain_tokens(one, context=CONTEXT) for one in group]
    assert short.tokens(last) == plain_tokens(late, context=CONTEXT)
    assert short.tokens(oldest) == plain_tokens(first, context=CONTEXT)


# ---- fairness


def test_the_oldest_is_in_every_pass_until_it_has_its_answer() -> None:
    short = bench(5, max_sessions=8, prefill_chunk=64)
    numbers = [short.engine.open([asked(40, 100, seed)])[0] for seed in range(6)]
    ended: list[int] = []
    while short.sessions:
        oldest = next(number for number in numbers if number not in ended)
        short.step()
        assert oldest in fed(short)
        ended += [number for number, runs in short.runs.items() if runs[-1].finish_reason and number not in ended]
    assert ended == numbers  # equally long answers end in the order they were asked for
    assert short.engine.counts["preemptions"] > 0


def test_the_one_admitted_last_gives_way_and_is_admitted_before_those_that_came_later() -> None:
    short = bench(6, max_sessions=2)
    first, second, third = (short.engine.open([asked(100, 150, seed)])[0] for seed in range(3))
    while short.engine.counts["preemptions"] == 0:
        assert short.sessions
        short.step()
        assert third not in fed(short)
    assert fed(short) == [first]
    short.finish()
    assert list(short.runs) == [first, second, third]
    assert all(first in (rows.session for rows in batch) for batch in short.passes[: len(short.runs[first])])


def test_a_prompt_waits_for_its_pages_and_is_not_overtaken() -> None:
    short = bench(6, max_sessions=8)
    [running] = short.engine.open([asked(200, 20)])
    [large] = short.engine.open([asked(150, 5, seed=1)])
    [small] = short.engine.open([asked(10, 5, seed=2)])
    while running not in short.runs or short.runs[running][-1].finish_reason is None:
        short.step()
        assert fed(short) == [running]
    short.step()
    assert fed(short) == [large, small]
    assert short.engine.counts["preemptions"] == 0


def test_a_prompt_whose_beginning_others_hold_needs_no_pages_for_it() -> None:
    short = bench(6, max_sessions=8)
    one = asked(200, 20)
    [first] = short.engine.open([one])
    short.step()
    [second] = short.engine.open([msgspec.structs.replace(one, params=asked(200, 20, seed=1).params)])
    short.step()
    assert fed(short) == [first, second]
    assert [len(rows.tokens) for rows in short.passes[-1]] == [1, 200 - 192]


def test_with_room_for_all_nobody_waits_for_pages() -> None:
    plenty = bench(8 * FEW, max_sessions=8)
    for seed in range(8):
        plenty.engine.open([asked(CONTEXT - 2, 20, seed)])
    for _ in range(8):
        plenty.step()
    assert plenty.engine.counts["steps"] == 8
    assert len(set(plenty.runs)) == 8
    assert plenty.engine.counts["preemptions"] == 0


# ---- seats, ends, limits


def test_a_draft_keeps_its_seat_through_a_preemption() -> None:
    short = bench(max_sessions=2)
    one, other = asked(60, 150), asked(60, 100, seed=1)
    answer = plain_tokens(other, context=CONTEXT)
    short.engine.open([one])
    [number] = short.engine.open([other])
    short.propose(number, 60, ())
    until_preempted(short)
    known = len(short.tokens(number))
    assert 0 < known < 100
    short.engine.outgoing()
    short.propose(number, 60 + known, answer[known : known + 4])
    short.propose(number, 60 + known, answer[known : known + 4])
    assert short.engine.outgoing() == [(b"math#1", Commit(number, 60 + known, ()))]
    while len(short.tokens(number)) == known:
        short.step()
        told = short.engine.outgoing()
    [run] = short.runs[number][known:]
    assert told == [(b"math#1", Commit(number, 60 + known, run.tokens))]
    short.finish()
    assert short.tokens(number) == answer
    assert short.engine.counts["accepted"] > 0


def test_a_session_that_gave_way_finds_its_pages_again_if_nobody_took_them() -> None:
    short = bench(6, max_sessions=2)
    [first] = short.engine.open([asked(100, 150)])
    [second] = short.engine.open([asked(100, 150, seed=1)])
    until_preempted(short)
    assert short.engine.counts["prefix_hit_tokens"] == 0
    short.engine.close(first)
    short.step()
    assert short.engine.counts["prefix_hit_tokens"] == 128
    assert short.engine.counts["prompt_tokens"] == 100 + 100 + 100 + len(short.tokens(second)) - 1
    short.finish()
    assert short.tokens(second) == plain_tokens(asked(100, 150, seed=1), context=CONTEXT)


def test_one_that_gave_way_may_be_closed() -> None:
    short = bench(6, max_sessions=2)
    numbers = [short.engine.open([asked(100, 150, seed)])[0] for seed in range(2)]
    until_preempted(short)
    short.engine.close(numbers[1])
    assert list(short.model.cached) == numbers[:1]
    short.finish()
    assert short.tokens(numbers[0]) == plain_tokens(asked(100, 150), context=CONTEXT)
    assert (short.model.cached, short.engine.wait()) == ({}, None)


def test_a_cache_smaller_than_one_answer_is_an_error_not_a_hang() -> None:
    short = bench(1)
    short.engine.open([asked(60, 20)])
    with pytest.raises(OutOfPages):
        short.finish()
