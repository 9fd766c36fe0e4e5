"""Drafting on while the target verifies: where it hides the drafting, and where it is left off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core import overlap
from core.overlap import BLOCK, EXPLORE, WORTH, Overlap
from tests.core.simulation import PASS, Draft, PartlyRight, Simulation
from tests.core.toy import ToyModel, plain_tokens, request

ANSWER = 400


def generated(seconds: float, model: ToyModel) -> tuple[float, Draft]:
    """When an answer by one draft was complete, and that draft."""
    simulation = Simulation()
    asked = request(ANSWER)
    number = simulation.generate(asked)
    draft = simulation.draft(seconds, model)
    simulation.join(draft, number, asked)
    simulation.run()
    assert tuple(token for run in simulation.target.runs[number] for token in run.tokens) == plain_tokens(asked)
    return simulation.target.passes[-1][1], draft


@pytest.fixture
def serially(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, ToyModel], tuple[float, Draft]]:
    def serial(seconds: float, model: ToyModel) -> tuple[float, Draft]:
        with monkeypatch.context() as patched:
            patched.setattr(overlap, "WORTH", float("inf"))
            return generated(seconds, model)

    return serial


def test_a_good_draft_hides_most_of_its_time(
    serially: Callable[[float, ToyModel], tuple[float, Draft]],
) -> None:
    alone, _ = serially(PASS / 8, ToyModel())
    ahead, draft = generated(PASS / 8, ToyModel())
    drafting = draft.engine.counts["rounds"] * 4 * PASS / 8
    assert (alone - ahead) / drafting >= 0.3
    assert draft.engine.counts["rounds_foreseen"] >= 0.6 * draft.engine.counts["rounds"]


@pytest.mark.parametrize("model", [PartlyRight(2), PartlyRight(4), ToyModel(salt=1)], ids=["half", "most", "wrong"])
@pytest.mark.parametrize("seconds", [PASS / 30, PASS / 8, PASS / 4])
def test_no_draft_makes_it_slower_than_serial_drafting(
    serially: Callable[[float, ToyModel], tuple[float, Draft]], seconds: float, model: ToyModel
) -> None:
    assert generated(seconds, model)[0] < 1.02 * serially(seconds, model)[0]


def test_a_draft_that_costs_next_to_nothing_is_left_serial() -> None:
    _, draft = generated(PASS * WORTH / 8, ToyModel())
    assert draft.engine.counts["rounds_foreseen"] <= 2  # before the first pass it drafts without being asked


def rounds(choice: Overlap, count: int, rate: Callable[[bool], float]) -> list[bool]:
    chosen = []
    for _ in range(count):
        chosen.append(choice.on)
        choice.observe(3, 3 / rate(choice.on), share=0.5)
    return chosen


def test_where_it_costs_more_than_it_brings_it_is_only_tried_now_and_then() -> None:
    chosen = rounds(Overlap(), 100 * BLOCK, lambda on: 90.0 if on else 100.0)
    assert 0 < sum(chosen) <= (100 / EXPLORE + 2) * BLOCK


def test_when_the_machine_changes_so_does_the_choice() -> None:
    choice = Overlap()
    rounds(choice, 50 * BLOCK, lambda on: 90.0 if on else 100.0)
    later = rounds(choice, 150 * BLOCK, lambda on: 130.0 if on else 100.0)
    assert sum(later[-50 * BLOCK :]) >= 0.8 * 50 * BLOCK
