"""Whether light drafts prepare: tried in some passes and not in others, by what these take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from core.model.base import Rows
from core.preparing import BLOCK, EXPLORE, LEARNING, Preparing
from tests.core.simulation import PASS, Draft, Simulation
from tests.core.test_overlap import Near
from tests.core.toy import plain_tokens, request

LEARNT = (LEARNING + 1) * BLOCK  # passes


def passes(choice: Preparing, count: int, seconds: Callable[[bool], float]) -> list[bool]:
    """The choices of so many passes."""
    chosen = []
    for _ in range(count):
        chosen.append(choice.on)
        choice.observe(seconds(choice.on), 1.0)
    return chosen


@pytest.mark.parametrize(("slower", "on"), [(0.9, True), (0.97, True), (1.1, False)])
def test_what_makes_passes_slower_is_left_but_for_a_trial_now_and_then(slower: float, on: bool) -> None:
    for seed in range(8):
        random, choice = Random(seed), Preparing()

        def seconds(on: bool, random: Random = random) -> float:
            return random.uniform(0.9, 1.1) * (slower if on else 1.0)

        first = passes(choice, LEARNT, seconds)
        assert first.count(True) >= 2 * BLOCK
        assert first.count(False) >= 2 * BLOCK
        later = passes(choice, 4 * EXPLORE * BLOCK, seconds)
        assert later.count(on) >= (1 - 1.5 / EXPLORE) * len(later)
        assert (not on) in later


def test_a_machine_that_slows_down_chooses_nothing() -> None:
    choice, count = Preparing(), 0

    def seconds(on: bool) -> float:
        nonlocal count
        count += 1
        return (1.0 + count / 4000) * (0.95 if on else 1.0)

    passes(choice, LEARNT, seconds)
    assert passes(choice, 2000, seconds).count(True) >= 1900


@pytest.mark.parametrize("before", [True, False])
def test_when_the_machine_changes_so_does_the_choice(before: bool) -> None:
    choice = Preparing()
    passes(choice, LEARNT, lambda on: 1.0 if on == before else 1.2)
    later = passes(choice, 8 * EXPLORE * BLOCK, lambda on: 1.2 if on == before else 1.0)
    assert later[-EXPLORE * BLOCK :].count(not before) >= 0.9 * EXPLORE * BLOCK


def answered(*, shares_cores: bool) -> tuple[Simulation, Draft]:
    """An answer by a draft that costs next to nothing, what it prepares being the target's time where cores are shared.

    That is told the target in its next pass, for on this clock one pass begins as it ends.
    """
    one, asked = Simulation(), request(2000)
    number = one.generate(asked)
    draft = one.draft(0.01 * PASS, Near())
    take_time, charged = one.target.model.on_forward, 0

    def slowed(batch: Sequence[Rows]) -> None:
        nonlocal charged
        assert take_time is not None
        take_time(batch)
        prepared = draft.engine.counts["prepared"]
        if shares_cores:
            one.clock.now += 0.01 * PASS * (prepared - charged)
        charged = prepared

    one.target.model.on_forward = slowed
    one.join(draft, number, asked)
    one.run()
    assert tuple(token for run in one.target.runs[number] for token in run.tokens) == plain_tokens(asked)
    return one, draft


def test_a_light_draft_prepares_where_it_has_a_core_and_not_where_that_is_the_targets() -> None:
    (_, beside), (_, apart) = (answered(shares_cores=shared) for shared in (True, False))
    share = {draft: draft.engine.counts["rounds_foreseen"] / draft.engine.counts["rounds"] for draft in (beside, apart)}
    assert share[apart] > 0.4
    assert share[beside] < 0.3 * share[apart]
