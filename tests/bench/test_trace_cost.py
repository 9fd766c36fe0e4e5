"""The bench of tracing: who is asked when, what its verdict says, and that it times records that are really kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from core.sampling.params import SamplingParams
from core.settings import parse_settings
from core.traces.store import Trace, TraceStore
from serve_app.api.app import create_app
from serve_app.config import ServiceConfig
from serve_app.deployments.models.served_models import ServedModels
from serve_app.terminal.progress import step
from tests.bench.engines import Answered
from tests.bench.items import Item
from tests.bench.paired import Ratio
from tests.bench.trace_cost import Ask, Latencies, as_json, asking, check_kept, measure, page, record_cost, verdict
from tests.serve_app.live import live
from tests.serve_app.scripted import ScriptedService

ITEMS = [Item(number, f"prompt {number}", (1,), "math", "general") for number in range(2)]
CONTENT = {"name": "m", "target": {"model": "family:target"}, "draft": {"model": "family:draft"}}


def measured(ask: Ask, turns: int) -> Latencies:
    with step(Console(quiet=True), "") as shown:
        return measure(ask, ITEMS, turns, shown)


def test_after_one_unmeasured_answer_a_prompt_is_asked_both_ways_each_first_as_often() -> None:
    asked: dict[int, list[bool]] = {item.number: [] for item in ITEMS}

    def ask(item: Item, store: bool) -> Answered:
        asked[item.number].append(store)
        slow = 1.0 if len(asked[item.number]) == 1 else 0.0
        return Answered((item.number,), slow + (0.202 if store else 0.2), slow + 0.1, 3, 0, 0)

    found = measured(ask, turns=2)
    assert asked == {0: [False, True, False, False, True], 1: [False, False, True, True, False]}
    assert found.pairs == 4
    ratios = found.ratios()
    assert ratios["total"] == pytest.approx((1.01, 1.01, 1.01, 4))
    assert ratios["first token"] == pytest.approx((1.0, 1.0, 1.0, 4))


def test_over_http_the_request_says_whether_the_answer_may_be_stored() -> None:
    service = ScriptedService()
    with live(create_app(service)) as url, asking(url, service.model_name, max_tokens=20) as ask:
        found = measured(ask, turns=1)
    assert [request.store for request in service.asked] == [False, False, True, False, False, True]
    assert {(request.params.temperature, request.params.max_tokens) for request in service.asked} == {(0.0, 20)}
    for name, ratio in found.ratios().items():
        first, *_ = found.by_name[name].quartiles("recorded")
        assert (ratio.items, first > 0) == (2, True)


def test_unequal_answers_are_no_pair() -> None:
    with pytest.raises(SystemExit, match="answers differ: prompt 0"):
        measured(lambda _, store: Answered((int(store),), 0.2, 0.1, 3, 0, 0), turns=1)


@pytest.mark.parametrize(
    ("low", "high", "said"), [(0.99, 1.019, "yes"), (0.99, 1.03, "not shown"), (1.021, 1.03, "no")]
)
def test_the_interval_decides_whether_the_bar_is_met(low: float, high: float, said: str) -> None:
    assert verdict(Ratio(1.0, low, high, 100)) == said


def test_records_that_are_timed_are_kept_and_the_page_has_their_cost() -> None:
    served = ServedModels(parse_settings(CONTENT, ServiceConfig, "configuration"))
    cost = record_cost(served, answers=5, files=2)
    assert (len(cost.on_loop), len(cost.written)) == (5, 2)
    assert min(*cost.on_loop, *cost.written) > 0
    found = measured(lambda _, store: Answered((1,), 0.21 if store else 0.2, 0.1, 3, 0, 0), turns=1)
    text = page(found, cost)
    assert "| total | 200.0 (200.0 to 200.0) | 210.0 (210.0 to 210.0) | 1.050 (1.050 to 1.050) | no |" in text
    assert "| first token | 100.0 (100.0 to 100.0) | 100.0 (100.0 to 100.0) | 1.000 (1.000 to 1.000) | yes |" in text
    assert "2 pairs. The record of an answer of 40 runs takes" in text
    assert set(as_json(found, cost)) == {"seconds", "times_unrecorded", "record_seconds"}


def test_a_service_that_kept_other_answers_than_asked_has_measured_nothing(tmp_path: Path) -> None:
    TraceStore(tmp_path).append([Trace(prompt_ids=(1,), output_ids=(2,), params=SamplingParams(seed=0, max_tokens=1))])
    check_kept(tmp_path, 1)
    for expected in (0, 2):
        with pytest.raises(SystemExit, match=f"1 answers were kept, and {expected} were asked to be"):
            check_kept(tmp_path, expected, within=0.0)
