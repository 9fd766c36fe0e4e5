"""Drafting on while the target verifies: where it hides the drafting, and where it is left off."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import torch

from core import overlap
from core.model.pages import pages_for
from core.overlap import BLOCK, CHOICES, EXPLORE, PAUSE, WORTH, Overlap
from core.verify_engine import VerifyConfig
from tests.core.simulation import PASS, Draft, PartlyRight, Simulation
from tests.core.toy import ToyModel, plain_tokens, request

ANSWER = 400
LOOPS = pytest.mark.parametrize("loops", [False, True], ids=["one by one", "loops"])


def generated(
    seconds: float, model: ToyModel, length: int = ANSWER, *, dear_lines: bool = False
) -> tuple[float, Draft]:
    """When an answer by one draft was complete, and that draft."""
    simulation = Simulation()
    asked = request(length)
    number = simulation.generate(asked)
    draft = simulation.draft(seconds, model, dear_lines=dear_lines)
    simulation.join(draft, number, asked)
    simulation.run()
    assert tuple(token for run in simulation.target.runs[number] for token in run.tokens) == plain_tokens(asked)
    return simulation.target.passes[-1][1], draft


@pytest.fixture
def serially(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, ToyModel], tuple[float, Draft]]:
    def serial(seconds: float, model: ToyModel) -> tuple[float, Draft]:
        with monkeypatch.context() as patched:
            patched.setattr(overlap, "CHOICES", (0,))
            return generated(seconds, model)

    return serial


class Near(ToyModel):
    """Agrees with the target mostly; where it does not, the target's token is often among its next best."""

    def __init__(self, num_pages: int = 2048, *, loops: bool = False) -> None:
        super().__init__(num_pages=num_pages, loops=loops)
        self._table = self._table + 0.15 * torch.randn(self._table.shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    ("choices", "dear_lines", "hidden"), [((0, 1), False, 0.3), ((0, 8), False, 0.6), ((0, 8), True, 0.6)]
)
@pytest.mark.parametrize("share", [0.4, 0.6])
@LOOPS
def test_most_of_the_drafting_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
    choices: tuple[int, ...],
    dear_lines: bool,
    hidden: float,
    share: float,
    loops: bool,
) -> None:
    """Drafting a proposal takes 0.4 to 0.6 of a pass, 0.84 of the proposed tokens are accepted."""
    seconds = share * PASS / VerifyConfig().num_speculative_tokens
    monkeypatch.setattr(overlap, "CHOICES", (0,))
    alone, serial = generated(seconds, Near(loops=loops), 1000, dear_lines=dear_lines)
    proposed = serial.engine.counts["drafted"]
    monkeypatch.setattr(overlap, "CHOICES", choices)
    ahead, draft = generated(seconds, Near(loops=loops), 1000, dear_lines=dear_lines)
    assert (alone - ahead) / (proposed * seconds) >= hidden
    assert draft.engine.counts["rounds_foreseen"] >= 0.5 * draft.engine.counts["rounds"]


@LOOPS
def test_what_was_prepared_is_given_back(loops: bool) -> None:
    _, draft = generated(PASS / 8, Near(loops=loops))
    assert draft.engine.counts["prepared"] > 0
    assert (draft.engine.gauges()["sessions"], draft.engine.gauges()["pages"]) == (0, 0)


@LOOPS
def test_without_pages_to_spare_nothing_is_prepared(loops: bool) -> None:
    """The pool holds the session and hardly more: the answer comes all the same."""
    tight = Near(pages_for(ANSWER + 16) + 1, loops=loops)
    _, draft = generated(PASS / 8, tight)
    assert draft.engine.gauges()["pages"] == 0


@pytest.mark.parametrize(
    "model", [lambda: PartlyRight(2), lambda: PartlyRight(4), lambda: ToyModel(salt=1)], ids=["half", "most", "wrong"]
)
@pytest.mark.parametrize("seconds", [PASS / 30, PASS / 8, PASS / 4])
@LOOPS
def test_no_draft_makes_it_slower_than_serial_drafting(
    serially: Callable[[float, ToyModel], tuple[float, Draft]],
    seconds: float,
    model: Callable[[], ToyModel],
    loops: bool,
) -> None:
    """Over costs nearby: what is asked in a single run hangs on a few lucky guesses."""

    def looping() -> ToyModel:
        made = model()
        made.loops = loops
        return made

    costs = [seconds * share for share in (0.8, 0.9, 1.0, 1.1, 1.2)]
    ahead = sum(generated(cost, looping())[0] for cost in costs)
    serial = sum(serially(cost, looping())[0] for cost in costs)
    assert ahead < 1.02 * serial


def test_a_draft_that_costs_next_to_nothing_prepares_where_that_costs_nothing() -> None:
    _, draft = generated(PASS * WORTH / 8, Near())
    assert draft.engine.counts["rounds_foreseen"] >= 0.5 * draft.engine.counts["rounds"]


def rounds(choice: Overlap, count: int, rate: Callable[[int], float], share: Callable[[int], float]) -> list[int]:
    """The choices of so many rounds; `share` of one is what drafting its proposal takes."""
    chosen = []
    for number in range(count):
        chosen.append(choice.verdicts)
        seconds = 3 / rate(choice.verdicts)
        choice.observe(4, 3, seconds, share(number) * seconds)
    return chosen


def test_luck_with_guesses_does_not_choose() -> None:
    """A round of the same proposal brings 1 to 7 tokens, by luck; drafting ahead saves a twentieth of its time."""
    for seed in range(8):
        random, choice, ahead = Random(seed), Overlap(), 0
        for _ in range(200 * BLOCK):
            ahead += choice.verdicts > 0
            choice.observe(6, random.randint(1, 7), 0.95 if choice.verdicts else 1.0, 0.5)
        assert ahead > 0.8 * 200 * BLOCK


def half(_: int) -> float:
    return 0.5


def test_a_short_proposal_now_and_then_is_no_reason_to_leave_it_off() -> None:
    last_is_short = [0.5] * (BLOCK - 1) + [WORTH / 2]
    better = rounds(
        Overlap(), 100 * BLOCK, lambda verdicts: 120.0 if verdicts else 100.0, lambda n: last_is_short[n % BLOCK]
    )
    assert sum(map(bool, better)) >= 0.9 * 100 * BLOCK
    all_but_last_are = [WORTH / 2] * (BLOCK - 1) + [0.5]
    always = rounds(Overlap(), 100 * BLOCK, lambda _: 100.0, lambda n: all_but_last_are[n % BLOCK])
    assert all(always[BLOCK:])


def test_only_a_light_draft_leaves_the_beginning_of_a_round_to_others() -> None:
    choice = Overlap()
    for share, pause in ((0.5, 0.0), (WORTH / 2, PAUSE)):
        rounds(choice, BLOCK, lambda _: 100.0, dict.fromkeys(range(BLOCK), share).__getitem__)
        assert choice.pause == pause


def test_where_it_costs_more_than_it_brings_it_is_only_tried_now_and_then() -> None:
    chosen = rounds(Overlap(), 100 * BLOCK, lambda verdicts: 90.0 if verdicts else 100.0, half)
    assert set(chosen) == set(CHOICES)
    assert sum(map(bool, chosen)) <= (100 / EXPLORE + 3) * BLOCK


@pytest.mark.parametrize("best", CHOICES)
def test_when_the_machine_changes_so_does_the_choice(best: int) -> None:
    choice = Overlap()
    rounds(choice, 50 * BLOCK, lambda verdicts: 90.0 if verdicts else 100.0, half)
    later = rounds(choice, 300 * BLOCK, lambda verdicts: 130.0 if verdicts == best else 100.0, half)
    assert later[-50 * BLOCK :].count(best) >= 0.8 * 50 * BLOCK
