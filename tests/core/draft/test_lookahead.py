"""Drafting on while the target verifies: it hides the drafting, and what it takes is given back."""

from __future__ import annotations

import pytest

from core.draft.lookahead import likely_verdicts
from core.draft.token_confidence import Confidence
from core.model.draft_tokens import DraftToken
from core.model.pages import pages_for
from core.policy.cost_model import profile
from core.verify.engine import VerifyConfig
from tests.core.simulation import PASS, Draft, Near, PartlyRight, Simulation
from tests.core.toy import ToyModel, plain_tokens, request

ANSWER = 400
LOOPS = pytest.mark.parametrize("loops", [False, True], ids=["one by one", "loops"])


def generated(
    seconds: float,
    model: ToyModel,
    length: int = ANSWER,
    *,
    lookahead: bool = True,
    dear_lines: bool = False,
    contention: float = 0.0,
) -> tuple[float, Draft]:
    """When an answer by one draft was complete, and that draft."""
    simulation = Simulation(contention=contention)
    profile(simulation.target.model, simulation.clock, simulation.target.engine.policy.costs)
    asked = request(length)
    number = simulation.generate(asked)
    draft = simulation.draft(seconds, model, dear_lines=dear_lines)
    simulation.join(draft, number, asked, lookahead=lookahead)
    simulation.run()
    assert tuple(token for run in simulation.target.runs[number] for token in run.tokens) == plain_tokens(asked)
    return simulation.target.passes[-1][1] - simulation.target.passes[0][0], draft


@pytest.mark.parametrize("dear_lines", [False, True])
@pytest.mark.parametrize("share", [0.4, 0.6])
@LOOPS
def test_most_of_the_drafting_is_hidden(dear_lines: bool, share: float, loops: bool) -> None:
    """Drafting a proposal takes 0.4 to 0.6 of a pass, 0.84 of the proposed tokens are accepted."""
    seconds = share * PASS / VerifyConfig().num_speculative_tokens
    alone, serial = generated(seconds, Near(loops=loops), 1000, lookahead=False, dear_lines=dear_lines)
    proposed = serial.engine.counts["drafted"]
    ahead, draft = generated(seconds, Near(loops=loops), 1000, dear_lines=dear_lines)
    assert (alone - ahead) / (proposed * seconds) >= 0.5
    assert draft.engine.counts["rounds_foreseen"] >= 0.5 * draft.engine.counts["rounds"]


@LOOPS
def test_the_pages_of_branches_are_given_back(loops: bool) -> None:
    _, draft = generated(PASS / 8, Near(loops=loops))
    assert draft.engine.counts["prepared"] > 0
    assert (draft.engine.gauges()["sessions"], draft.engine.gauges()["pages"]) == (0, 0)


@LOOPS
def test_without_pages_to_spare_the_answer_comes_all_the_same(loops: bool) -> None:
    """The pool holds the session and hardly more."""
    _, draft = generated(PASS / 8, Near(pages_for(ANSWER + 16) + 1, loops=loops))
    assert draft.engine.gauges()["pages"] == 0


@pytest.mark.parametrize("model", [lambda: PartlyRight(2), lambda: ToyModel(salt=1)], ids=["half", "wrong"])
@pytest.mark.parametrize("seconds", [pytest.param(PASS / 30, marks=pytest.mark.thorough), PASS / 4])
def test_looking_ahead_makes_no_draft_slower(model: type[ToyModel], seconds: float) -> None:
    """Over costs nearby: what is asked in a single run hangs on a few lucky guesses."""
    costs = [seconds * share for share in (0.8, 0.9, 1.0, 1.1, 1.2)]
    ahead = sum(generated(cost, model())[0] for cost in costs)
    serial = sum(generated(cost, model(), lookahead=False)[0] for cost in costs)
    assert ahead < 1.02 * serial


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_a_draft_that_slows_the_target_down_soon_drafts_only_between_passes(share: float) -> None:
    """Drafting a proposal takes this share of a pass; beside it a pass takes 1.6 times as long."""
    seconds = share * PASS / VerifyConfig().num_speculative_tokens
    serial, _ = generated(seconds, Near(), 2000, lookahead=False, contention=0.6)
    ahead, draft = generated(seconds, Near(), 2000, contention=0.6)
    assert ahead < 1.03 * serial
    assert 0 < draft.engine.counts["rounds_foreseen"] < 0.2 * draft.engine.counts["rounds"]


def test_the_likeliest_verdicts_come_first_and_unlikely_ones_not_at_all() -> None:
    sure, unsure = DraftToken(1, 20.0, (7, 8, 9)), DraftToken(2, 0.1, (5, 6))
    verdicts = likely_verdicts([sure, unsure, DraftToken(3, 20.0)], 2, Confidence(), 8)
    assert set(verdicts[:2]) == {(2, 3), (1, 5)}
    assert (0, 9) not in verdicts
    assert len(likely_verdicts([sure, unsure, DraftToken(3, 20.0)], 2, Confidence(), 2)) == 2
    assert likely_verdicts([], 0, Confidence(), 8) == []
