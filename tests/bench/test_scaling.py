"""Pools follow their traffic and what their drafts are worth, to zero and back, and no answer shows it."""

from __future__ import annotations

import asyncio

import pytest

from tests.bench.scaled_service import ENDED, KEPT, MOST, SCALING, Step
from tests.bench.scaling import measured, page


@pytest.mark.cluster
@pytest.mark.soak  # five minutes, more on a busy machine
@pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field")  # what is to replace it is not read by Ray 2.60
def test_pools_follow_traffic_and_worth_and_answers_stay_equal() -> None:
    steps, (unequal, prompts) = asyncio.run(measured("ours"))
    print("", page({"ours": steps}), sep="\n")
    assert unequal == 0 < prompts
    stays = {name for name in steps if "stay" in name}
    assert [name for name, step in steps.items() if step.seconds is None and name not in stays] == []
    for name in stays:
        assert steps[name].seconds is None, "a pool that does not pay has grown"


def test_a_page_has_every_step_by_policy() -> None:
    steps = {"one": Step(3.2, {KEPT: 1.0, ENDED: 0.0}, {}), "two": Step(None, {KEPT: float(MOST), ENDED: 0.26}, {})}
    assert page({"ours": steps, "serve": steps}).splitlines()[2:] == [
        "| one | 3; 1.0, 0.0 | 3; 1.0, 0.0 |",
        "| two | -; 3.0, 0.3 | -; 3.0, 0.3 |",
    ]
    assert SCALING["max_replicas"] == MOST
