"""Replays of rerouted answers count what the plain replay counts, and move when the policy says so."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core.distill.record import Record
from core.distill.replay import Terms, replay
from core.draft_key import GENERAL
from core.policy.rerouting import RoutingTable
from core.sampling.params import SamplingParams
from tests.bench.rerouting import JOIN_PASSES, at_random, play

TERMS = Terms(num_speculative_tokens=6, num_valid=100, context=512)
ROUTED = {"math": 0.95, "code": 0.03, GENERAL: 0.02}


def record(length: int) -> Record:
    params = SamplingParams(seed=1, max_tokens=length)
    return Record(prompt_ids=(1, 2), output_ids=tuple([5] * length), params=params)


def hits(length: int, every: int) -> list[bool]:
    """One miss in every so many tokens; never a hit if `every` is 1."""
    return [bool((at + 1) % every) for at in range(length)]


def table(*slots: str) -> RoutingTable:
    return RoutingTable(slots, {})


@pytest.mark.parametrize("length", [1, 2, 7, 90])
def test_a_slot_that_is_kept_counts_as_in_a_plain_replay(length: int) -> None:
    of_slots = {slot: hits(length, 5) for slot in ("math", "code", GENERAL)}
    played = play(of_slots, record(length), ROUTED, table("math", "code"), TERMS)
    assert played.slots == ("math",)
    assert played.counts == replay(hits(length, 5), record(length), TERMS)


def test_a_slot_that_never_hits_is_left_and_drafts_on_until_the_next_has_joined() -> None:
    length = 120
    of_slots: dict[str, Sequence[bool]] = {"math": hits(length, 1), "code": hits(length, 1), GENERAL: hits(length, 99)}
    played = play(of_slots, record(length), ROUTED, table("math", "code"), TERMS)
    assert played.slots == ("math", GENERAL)
    alone = replay(hits(length, 99), record(length), TERMS)
    assert alone.passes + JOIN_PASSES < played.counts.passes < alone.passes + 15
    assert played.counts.tokens == alone.tokens


def test_a_router_that_guesses_is_as_sure_and_sometimes_wrong() -> None:
    dealt = [at_random(ROUTED, str(seed)) for seed in range(20)]
    assert all(sorted(chances.values()) == sorted(ROUTED.values()) for chances in dealt)
    assert len({max(chances, key=lambda task: chances[task]) for chances in dealt}) == len(ROUTED)
