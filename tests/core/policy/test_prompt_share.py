"""What prompt tokens cost, as it is learned, and how much of each prompt a pass reads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.base import Rows
from core.policy.cost_model import PassCosts, profile
from core.policy.prompt_costs import Chunk, PromptCosts
from core.policy.prompt_share import (
    BOUND_PASSES,
    BOUND_SECONDS,
    LEAST_CHUNK,
    Room,
    UnreadPrompt,
    follows,
    room,
    shares,
)
from tests.core.toy import Clock, ToyModel

PASS, PER_TOKEN, PER_PAIR = 0.010, 0.0006, 0.0000004
DEPTHS = (0, 400, 3000)


def taken(chunk: Chunk) -> float:
    return PER_TOKEN * chunk.tokens + PER_PAIR * chunk.pairs


def known() -> PromptCosts:
    costs = PromptCosts()
    chunks = [Chunk(64, depth) for depth in (0, 64, 256)]
    costs.begin({chunk: taken(chunk) for chunk in chunks})
    return costs


# ---- costs


@pytest.mark.parametrize("depth", DEPTHS)
def test_what_two_depths_say_holds_for_all(depth: int) -> None:
    assert known().seconds([Chunk(100, depth)]) == pytest.approx(taken(Chunk(100, depth)))


@given(st.floats(1e-4, 2.0), st.integers(0, 8000))
def test_as_many_tokens_fit_as_take_so_long(seconds: float, depth: int) -> None:
    costs = known()
    fitting = int(costs.fitting(seconds, depth))
    assert costs.seconds([Chunk(fitting, depth)]) <= seconds * (1 + 1e-9)
    assert costs.seconds([Chunk(fitting + 1, depth)]) > seconds * (1 - 1e-9)


def test_no_tokens_fit_into_no_time_and_any_number_before_their_cost_is_known() -> None:
    assert known().fitting(-1.0, 0) == 0.0
    assert known().fitting(math.inf, 0) == math.inf
    assert PromptCosts().fitting(0.001, 0) == math.inf


@pytest.mark.parametrize("wrong", [0.2, 0.5, 2.0, 5.0])
def test_a_wrong_start_is_mended_by_one_long_prompt(wrong: float) -> None:
    costs = PassCosts()
    costs.observe(4, PASS)
    costs.prompts.begin({Chunk(64, 0): wrong * taken(Chunk(64, 0))})
    for depth in range(0, 3000, 50):
        chunk = Chunk(50, depth)
        costs.observe_reading(4, [chunk], PASS + taken(chunk))
    assert costs.prompts.seconds([Chunk(50, 3000)]) == pytest.approx(taken(Chunk(50, 3000)), rel=0.1)
    assert costs.seconds(4) == pytest.approx(PASS, rel=0.1)


@pytest.mark.parametrize("depth", [0, 500])
def test_the_first_pass_that_reads_says_what_reading_costs(depth: int) -> None:
    costs = PassCosts()
    costs.observe(4, PASS)
    chunk = Chunk(200, depth)
    costs.observe_reading(4, [chunk], PASS + taken(chunk))
    assert costs.prompts.seconds([chunk]) == pytest.approx(taken(chunk))
    assert costs.seconds(4) == PASS


def test_one_interrupted_pass_hardly_counts() -> None:
    costs = PassCosts()
    costs.observe(4, PASS)
    costs.prompts.begin({Chunk(64, 0): taken(Chunk(64, 0))})
    costs.observe_reading(4, [Chunk(64, 0)], 5.0)
    assert costs.prompts.seconds([Chunk(64, 0)]) < 1.3 * taken(Chunk(64, 0))
    assert costs.seconds(4) < 1.1 * PASS


@pytest.mark.parametrize("context", [16, 100, 4096])
def test_a_profile_knows_what_prompts_cost_and_leaves_nothing(context: int) -> None:
    model, clock = ToyModel(context=context), Clock()

    def take_time(batch: Sequence[Rows]) -> None:
        [rows] = batch
        clock.now += PASS + taken(Chunk(len(rows.tokens), model.num_cached(rows.session)))

    model.on_forward = take_time
    costs = PassCosts()
    profile(model, clock, costs)
    assert costs.prompts.known == (context >= 100)
    if context > 1000:
        for depth in DEPTHS:
            assert costs.prompts.seconds([Chunk(100, depth)]) == pytest.approx(taken(Chunk(100, depth)), rel=0.1)
    assert (model.cached, model.num_used_pages) == ({}, 0)


# ---- room and shares


def test_a_pass_without_answers_has_room_for_the_largest_chunk() -> None:
    costs = PassCosts()
    costs.observe(1, PASS)
    assert room(costs, 256, 0) == Room(256)


@pytest.mark.parametrize("seconds", [0.002, 0.010, 0.040])
def test_a_pass_with_answers_takes_four_times_as_long_or_fifty_milliseconds(seconds: float) -> None:
    costs = PassCosts()
    costs.observe(4, seconds)
    assert room(costs, 256, 4).seconds + seconds == pytest.approx(max(BOUND_PASSES * seconds, BOUND_SECONDS))


def test_before_reading_was_observed_a_token_is_taken_to_cost_a_pass() -> None:
    costs = PassCosts()
    assert room(costs, 256, 4) == Room(256)
    costs.observe(1, 0.002)
    assert room(costs, 256, 1).tokens == 24
    costs.observe_reading(1, [Chunk(24, 0)], 0.004)
    assert room(costs, 256, 1).tokens == 256


PROMPTS = st.lists(st.builds(UnreadPrompt, st.integers(2, 4000), st.integers(0, 4000)), min_size=1, max_size=6)


@given(PROMPTS, st.integers(1, 512), st.one_of(st.floats(0.0, 1.0), st.just(math.inf)))
def test_shares_fit_into_the_room_and_the_first_prompt_has_one(
    prompts: list[UnreadPrompt], tokens: int, seconds: float
) -> None:
    costs = known()
    given = shares(prompts, Room(tokens, seconds), costs)
    chunks = [Chunk(share, prompt.num_read) for share, prompt in zip(given, prompts, strict=True)]
    assert all(0 <= share <= prompt.num_unread for share, prompt in zip(given, prompts, strict=True))
    assert sum(given) <= tokens
    assert given[0] >= min(LEAST_CHUNK, tokens - tokens // 2, prompts[0].num_unread)
    assert costs.seconds(chunks) <= seconds + costs.seconds([Chunk(LEAST_CHUNK, prompts[0].num_read + given[0])])
    alone = shares(prompts[:1], Room(tokens, seconds), costs)[0]
    assert given[0] >= min(prompts[0].num_unread, alone // 2)


@given(PROMPTS, st.integers(1, 512))
def test_what_the_first_prompts_leave_is_for_those_after_them(prompts: list[UnreadPrompt], tokens: int) -> None:
    given = shares(prompts, Room(tokens), known())
    assert sum(given) == min(tokens, sum(prompt.num_unread for prompt in prompts))


def test_the_prompt_with_the_least_left_has_half_unless_it_follows_another() -> None:
    long, short = UnreadPrompt(3000, 0), UnreadPrompt(200, 0)
    assert shares([long, short], Room(256), known()) == [128, 128]
    assert shares([long, short._replace(follows=True)], Room(256), known()) == [256, 0]
    assert shares([long, long, short._replace(num_unread=20)], Room(256), known()) == [236, 0, 20]
    assert shares([short, long], Room(256), known()) == [200, 56]


def test_a_prompt_follows_one_that_has_its_next_page() -> None:
    tokens = list(range(200))
    other = [*tokens[:128], *tokens]
    assert follows(tokens, 0, [other])
    assert follows(tokens, 64, [[7], other])
    assert not follows(tokens, 128, [other])
    assert not follows(tokens, 64, [[7, *other[1:]]])
    assert not follows(tokens, 0, [])
