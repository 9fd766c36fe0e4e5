"""Engines and answers under vLLM's names: what its boards and Ray's read is there, and says what it says in vLLM."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import ray
from ray.serve import metrics

from core.generation import GenerationRequest, Run
from core.sampling.params import SamplingParams
from serve_app.deployments.telemetry.vllm_names import (
    ACCEPTED_AT,
    ANSWER_HISTOGRAMS,
    DRAFTS,
    ENGINE_COUNTS,
    AnswersUnderVllmNames,
    EngineUnderVllmNames,
)
from serve_app.http.ledger import AnswerLedger
from serve_app.http.service import ChoiceRun
from tests.serve_app.deployments.telemetry.recording import Clock, Recorded, recorded_values

BOARD = Path(ray.__file__).parent / "dashboard/modules/metrics/dashboards/serve_llm_dashboard_panels.py"
# What Ray's board shows of parts that this service does not have: other caches, their transfers, and a swap space.
NOT_HERE = re.compile("(nixl|kv_offload|external_prefix_cache)_.*|num_requests_swapped")
GAUGES = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return recorded_values(monkeypatch, "vllm_")


@pytest.fixture
def engine(recorded: Recorded) -> EngineUnderVllmNames:  # noqa: ARG001 - nothing goes to Ray
    return EngineUnderVllmNames("org/toy")


@pytest.fixture
def answers(recorded: Recorded) -> AnswersUnderVllmNames:  # noqa: ARG001 - nothing goes to Ray
    return AnswersUnderVllmNames("org/toy")


def choices(number: int = 1, prompt_length: int = 7) -> list[GenerationRequest]:
    params = SamplingParams(seed=1, max_tokens=9)
    tokens = tuple(range(prompt_length))
    return [
        GenerationRequest(tokens=tokens, prompt_length=prompt_length, params=params, choice=choice)
        for choice in range(number)
    ]


def test_what_rays_board_reads_is_there() -> None:
    shown = set(re.findall(r"ray_vllm_(\w+)", BOARD.read_text()))
    counters = {f"{name}_total" for name in (*ENGINE_COUNTS, DRAFTS, ACCEPTED_AT, "request_success")}
    histograms = {f"{name}{part}" for name in ANSWER_HISTOGRAMS for part in ("", "_sum", "_count", "_bucket")}
    assert len(shown) > 30
    assert {name for name in shown - GAUGES - counters - histograms if not NOT_HERE.fullmatch(name)} == set()


def test_the_state_of_an_engine_is_what_it_holds_now(engine: EngineUnderVllmNames, recorded: Recorded) -> None:
    engine.export(Counter(sessions=5, waiting_sessions=2, pages=3, free_pages=9, remembered_pages=4))
    engine.export(Counter())
    assert recorded == {
        ("num_requests_running",): [3, 0],
        ("num_requests_waiting",): [2, 0],
        ("kv_cache_usage_perc",): [0.25, 0.0],
    }


def test_what_an_engine_counts_is_exported_once_proposals_by_position(
    engine: EngineUnderVllmNames, recorded: Recorded
) -> None:
    counts = Counter(
        {"prompt_tokens": 50, "prefix_hit_tokens": 20, "tokens": 9, "proposed": 8, "accepted": 4, "preemptions": 1}
    )
    counts.update({"passes_accepting_0": 2, "passes_accepting_1": 1, "passes_accepting_3": 1, "plain_passes": 4})
    engine.export(counts)
    counts.update({"tokens": 2, "passes_accepting_1": 1, "proposed": 2, "accepted": 1})
    engine.export(counts)
    state = {(name,) for name in GAUGES}
    assert {series: values for series, values in recorded.items() if series not in state} == {
        ("prompt_tokens",): [50],
        ("generation_tokens",): [9, 2],
        ("prefix_cache_queries",): [50],
        ("prefix_cache_hits",): [20],
        ("num_preemptions",): [1],
        ("spec_decode_num_drafts",): [4, 1],
        ("spec_decode_num_draft_tokens",): [8, 2],
        ("spec_decode_num_accepted_tokens",): [4, 1],
        ("spec_decode_num_accepted_tokens_per_pos", "0"): [2, 1],
        ("spec_decode_num_accepted_tokens_per_pos", "1"): [1],
        ("spec_decode_num_accepted_tokens_per_pos", "2"): [1],
    }


def test_an_answer_gives_one_value_of_each_time_and_length(answers: AnswersUnderVllmNames, recorded: Recorded) -> None:
    clock = Clock()
    ledger = AnswerLedger(clock)
    for seconds, run in (
        (1.0, None),
        (0.5, Run((1,))),
        (2.0, Run((2, 3, 4), proposed=4, accepted=2)),
        (2.0, Run((5,), finish_reason="length")),
    ):
        clock.now += seconds
        ledger.take() if run is None else ledger.add(ChoiceRun(0, run, "general"))
    clock.now += 50.0
    ledger.take()  # another verifier goes on with an answer: it has waited before
    assert recorded == {}
    answers.end(ledger, choices(), failed=False)
    assert recorded == {
        ("request_success", "length"): [1],
        ("time_to_first_token_seconds",): [1.5],
        ("e2e_request_latency_seconds",): [5.5],
        ("request_queue_time_seconds",): [1.0],
        ("request_prefill_time_seconds",): [0.5],
        ("request_decode_time_seconds",): [4.0],
        ("request_inference_time_seconds",): [4.5],
        ("request_prompt_tokens",): [7],
        ("request_generation_tokens",): [5],
        ("inter_token_latency_seconds",): [2.0],  # two passes after the first token
        ("request_time_per_output_token_seconds",): [1.0],
        ("request_max_num_generation_tokens",): [5],
    }


@pytest.mark.parametrize(("failed", "reason"), [(False, "abort"), (True, "error")])
def test_choices_count_by_their_ends_and_only_those_with_one_have_values(
    answers: AnswersUnderVllmNames, recorded: Recorded, failed: bool, reason: str
) -> None:
    ledger = AnswerLedger(Clock())
    ledger.take()
    for choice, run in ((0, Run((1, 2), finish_reason="stop")), (1, Run((3, 4, 5)))):
        ledger.add(ChoiceRun(choice, run, "general"))
    answers.end(ledger, choices(3), failed=failed)
    assert (recorded["request_success", "stop"], recorded["request_success", reason]) == ([1], [1, 1])
    assert recorded["request_generation_tokens",] == recorded["request_max_num_generation_tokens",] == [2]
    assert ("inter_token_latency_seconds",) not in recorded  # of one run: there is no time between two


def test_an_answer_that_no_verifier_took_has_no_values(answers: AnswersUnderVllmNames, recorded: Recorded) -> None:
    answers.end(AnswerLedger(Clock()), choices(), failed=True)
    answers.export(num_waiting=3)
    assert recorded == {("request_success", "error"): [1], ("num_requests_waiting",): [3]}


def test_every_series_has_the_model_and_engine_that_boards_filter_by() -> None:
    told = AnswersUnderVllmNames("модель 7b")
    named = {"model_name": r"\u043c\u043e\u0434\u0435\u043b\u044c 7b", "engine": "0"}
    for metric in (*told._histograms.values(), told._ended, told._waiting):
        assert metric.info["default_tags"] == named
        assert metric.info["name"].startswith("vllm_")
    assert isinstance(told._waiting, metrics.Gauge)
    told.end(AnswerLedger(Clock()), choices(), failed=True)  # Ray's own takes the tags


@pytest.mark.parametrize("bounds", ANSWER_HISTOGRAMS.values(), ids=ANSWER_HISTOGRAMS)
def test_bounds_of_vllm_names_rise(bounds: list[float]) -> None:
    assert bounds == sorted(set(bounds))
    assert bounds[0] > 0
