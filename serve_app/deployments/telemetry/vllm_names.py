"""What this service counts under the names of vLLM, which its boards and Ray's for language models read.

vLLM's `vllm:x` is `vllm_x` to Ray's metrics, which export it as `ray_vllm_x`. A name means here what it means in vLLM,
and so does a label. Two are coarser: an answer gives one `inter_token_latency_seconds`, its mean, and the queue time
ends when a verifier has taken the prompt, whether or not it has pages for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from ray.serve import metrics

from core.generation import GenerationRequest
from serve_app.deployments.telemetry.answer_metrics import ANSWER_BOUNDS, FIRST_TOKEN_BOUNDS, PER_TOKEN_BOUNDS
from serve_app.http.ledger import AnswerLedger, ChoiceLedger

Kind = TypeVar("Kind", bound=metrics.Counter | metrics.Gauge | metrics.Histogram)

# The counters of an engine, and what it counts for them (`core.verify.engine`, `core.verify.scheduler`).
ENGINE_COUNTS = {
    "prompt_tokens": "prompt_tokens",
    "generation_tokens": "tokens",
    "prefix_cache_queries": "prompt_tokens",
    "prefix_cache_hits": "prefix_hit_tokens",
    "num_preemptions": "preemptions",
    "spec_decode_num_draft_tokens": "proposed",
    "spec_decode_num_accepted_tokens": "accepted",
}
DRAFTS, ACCEPTED_AT = "spec_decode_num_drafts", "spec_decode_num_accepted_tokens_per_pos"
PASSES_ACCEPTING = "passes_accepting_"  # and how many tokens, in the counts of an engine
WAITING = "num_requests_waiting"

PHASE_BOUNDS = [0.001, 0.002, 0.003, 0.005, 0.007, *FIRST_TOKEN_BOUNDS, 60.0, 120.0, 300.0]
# Not up to the context: Ray drops what another service on the node has with other bounds under the same name.
TOKEN_BOUNDS = [digit * 10.0**power for power in range(6) for digit in (1, 2, 5)]
ANSWER_HISTOGRAMS = {
    "time_to_first_token_seconds": FIRST_TOKEN_BOUNDS,
    "request_time_per_output_token_seconds": PER_TOKEN_BOUNDS,
    "inter_token_latency_seconds": PER_TOKEN_BOUNDS,
    "e2e_request_latency_seconds": ANSWER_BOUNDS,
    "request_queue_time_seconds": PHASE_BOUNDS,
    "request_prefill_time_seconds": PHASE_BOUNDS,
    "request_decode_time_seconds": PHASE_BOUNDS,
    "request_inference_time_seconds": PHASE_BOUNDS,
    "request_prompt_tokens": TOKEN_BOUNDS,
    "request_generation_tokens": TOKEN_BOUNDS,
    "request_max_num_generation_tokens": TOKEN_BOUNDS,
}


class Series(NamedTuple):
    """A counter, and the position in a proposal that it is of, if it is of one."""

    name: str
    position: int | None = None


class EngineUnderVllmNames:
    """A verifier's engine."""

    def __init__(self, model_name: str) -> None:
        self._running = _named(metrics.Gauge, "num_requests_running", model_name)
        self._waiting = _named(metrics.Gauge, WAITING, model_name)
        self._pages_used = _named(metrics.Gauge, "kv_cache_usage_perc", model_name)
        self._counters = {name: _named(metrics.Counter, name, model_name) for name in (*ENGINE_COUNTS, DRAFTS)}
        self._counters[ACCEPTED_AT] = _named(metrics.Counter, ACCEPTED_AT, model_name, "position")
        self._exported: Counter[Series] = Counter()

    def export(self, counts: Counter[str]) -> None:
        """Export the state, and what was counted since the last time; `counts` are `TargetVerifier.counts`."""
        self._running.set(counts["sessions"] - counts["waiting_sessions"])
        self._waiting.set(counts["waiting_sessions"])
        self._pages_used.set(counts["pages"] / max(1, counts["pages"] + counts["free_pages"]))
        totals = engine_totals(counts)
        for series, more in (totals - self._exported).items():
            tags = {} if series.position is None else {"position": str(series.position)}
            self._counters[series.name].inc(more, tags)
        self._exported = totals


def engine_totals(counts: Counter[str]) -> Counter[Series]:
    """What an engine has counted so far."""
    totals = Counter({Series(name): counts[count] for name, count in ENGINE_COUNTS.items()})
    for count, passes in counts.items():
        if count.startswith(PASSES_ACCEPTING):
            totals[Series(DRAFTS)] += passes
            for position in range(int(count.removeprefix(PASSES_ACCEPTING))):
                totals[Series(ACCEPTED_AT, position)] += passes
    return totals


class AnswersUnderVllmNames:
    """The answers of an ingress replica."""

    def __init__(self, model_name: str) -> None:
        self._waiting = _named(metrics.Gauge, WAITING, model_name)
        self._ended = _named(metrics.Counter, "request_success", model_name, "finished_reason")
        self._histograms = {
            name: _named(metrics.Histogram, name, model_name, boundaries=bounds)
            for name, bounds in ANSWER_HISTOGRAMS.items()
        }

    def end(self, ledger: AnswerLedger, requests: Sequence[GenerationRequest], *, failed: bool) -> None:
        """An answer is over. Of choices without an end it is counted whether it `failed` or the client has left."""
        unfinished = "error" if failed else "abort"
        for number, request in enumerate(requests):
            choice = ledger.choices[number]
            self._ended.inc(1, {"finished_reason": choice.finish_reason or unfinished})
            for name, value in choice_values(ledger, choice, request.prompt_length).items():
                self._histograms[name].observe(value)
        if lengths := [len(choice.tokens) for choice in ledger.choices.values() if choice.finished]:
            self._histograms["request_max_num_generation_tokens"].observe(max(lengths))

    def export(self, num_waiting: int) -> None:
        """Export how many prompts wait for a verifier."""
        self._waiting.set(num_waiting)


def choice_values(ledger: AnswerLedger, choice: ChoiceLedger, prompt_length: int) -> dict[str, float]:
    """The values of a choice by the names of their histograms, in seconds and tokens; none if it has no end."""
    if choice.ended_at is None or ledger.taken_at is None:
        return {}
    decoding = choice.ended_at - choice.first_at
    values = {
        "time_to_first_token_seconds": choice.first_at - ledger.began,
        "e2e_request_latency_seconds": choice.ended_at - ledger.began,
        "request_queue_time_seconds": ledger.taken_at - ledger.began,
        "request_prefill_time_seconds": choice.first_at - ledger.taken_at,
        "request_decode_time_seconds": decoding,
        "request_inference_time_seconds": choice.ended_at - ledger.taken_at,
        "request_prompt_tokens": prompt_length,
        "request_generation_tokens": len(choice.tokens),
    }
    if choice.passes:
        values["inter_token_latency_seconds"] = decoding / choice.passes
    if choice.tokens_of_passes:
        values["request_time_per_output_token_seconds"] = decoding / choice.tokens_of_passes
    return values


def _named(kind: type[Kind], name: str, model_name: str, *labels: str, **options: Any) -> Kind:
    """A metric of vLLM's with its labels; every engine here is the one of its replica, which is a label, too."""
    every: Any = ("model_name", "engine", *labels)  # Ray's annotation admits one, its code any number
    metric = kind(f"vllm_{name}", tag_keys=every, **options)
    in_ascii = model_name.encode("ascii", "backslashreplace").decode()  # as Ray raises on any other
    metric.set_default_tags({"model_name": in_ascii, "engine": "0"})
    return metric
