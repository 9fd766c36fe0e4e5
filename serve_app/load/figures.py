"""The figures of a level in one mode: latencies, rates, goodput and acceptance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from serve_app.load.sending import Level, Measured, Mode, Round, Sample
from serve_app.load.times import Counted, Times


class GoodputLimits(msgspec.Struct, frozen=True):
    """GoodputLimits for goodput: time to the first token, and mean time per token after the first chunk."""

    ttft_s: float | None = None
    per_token_s: float | None = None


class Spread(msgspec.Struct, frozen=True):
    """Quantiles, interpolated."""

    p10: float
    p50: float
    p90: float
    p99: float


class Goodput(msgspec.Struct, frozen=True):
    """Requests answered within the limits: their share of all requests, and their number per second."""

    share: float
    per_s: float | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A level in one mode; times in seconds.

    `busy_s` is the time under full load; `tokens_per_s`, `requests_per_s` and the rate of goodput count arrivals within
    it. `ttft_s`, `per_token_s` (time after the first chunk / tokens after it) and its inverse `user_tokens_per_s` have
    a value per answer, `inter_token_s` one per token, `chunk_gap_s` one per chunk. `failed` counts errors by message
    and `continued` the answers that were cut and went on. `client_cpu` is the client's own use of a core.
    """

    level: Level
    speculation: Mode
    requests: int
    answered: int
    failed: dict[str, int]
    continued: int = 0
    tokens: int
    counted_by: list[Counted]
    busy_s: float
    ttft_s: Spread | None
    inter_token_s: Spread | None
    chunk_gap_s: Spread | None
    per_token_s: Spread | None
    user_tokens_per_s: Spread | None
    tokens_per_s: float | None
    requests_per_s: float | None
    goodput: Goodput | None
    acceptance_rate: float | None
    tokens_per_target_pass: float | None
    client_cpu: float | None


class _Timed:
    """A round, with the times of its answers."""

    def __init__(self, current: Round) -> None:
        self.answers = [Times(sample.answer, sample.due_at) for sample in current.samples if sample.answer is not None]
        last = max((answer.end for answer in self.answers), default=current.began)
        until = last if current.until is None else current.until  # an interrupted round lasts until its last answer
        self.busy_s = until - current.began
        self.tokens = sum(answer.tokens_until(until) for answer in self.answers)
        self.ended = [answer for answer in self.answers if answer.end <= until]


def figures(measured: Measured, mode: Mode, limits: GoodputLimits) -> Figures:
    """The figures of a level in one mode."""
    mine = [each for each in measured.rounds if each.mode == mode]
    samples = [sample for each in mine for sample in each.samples]
    timed = [_Timed(each) for each in mine]
    answers = [answer for each in timed for answer in each.answers]
    ended = [answer for each in timed for answer in each.ended]
    busy_s = sum(each.busy_s for each in timed)
    per_token = _known(answer.per_token for answer in answers)
    return Figures(
        level=measured.level,
        speculation=mode,
        requests=len(samples),
        answered=len(answers),
        failed=dict(Counter(str(sample.error) for sample in samples if sample.answer is None)),
        continued=sum(sample.answer is not None and sample.answer.cuts > 0 for sample in samples),
        tokens=sum(answer.tokens for answer in answers),
        counted_by=sorted({answer.counted_by for answer in answers}),
        busy_s=busy_s,
        ttft_s=spread(_known(answer.ttft for answer in answers)),
        inter_token_s=spread([gap for answer in answers for gap in answer.token_gaps]),
        chunk_gap_s=spread([gap for answer in answers for gap in answer.gaps]),
        per_token_s=spread(per_token),
        user_tokens_per_s=spread([1 / seconds for seconds in per_token]),
        tokens_per_s=_ratio(sum(each.tokens for each in timed), busy_s),
        requests_per_s=_ratio(len(ended), busy_s),
        goodput=_goodput(limits, answers, ended, len(samples), busy_s),
        acceptance_rate=_acceptance_rate(samples),
        tokens_per_target_pass=_tokens_per_target_pass(samples),
        client_cpu=_ratio(sum(each.cpu_s for each in mine), sum(each.wall_s for each in mine)),
    )


def spread(values: Sequence[float]) -> Spread | None:
    """None for no values."""
    return Spread(*np.quantile(values, [0.1, 0.5, 0.9, 0.99]).tolist()) if values else None


def _goodput(
    limits: GoodputLimits, answers: Sequence[Times], ended: Sequence[Times], requests: int, busy_s: float
) -> Goodput | None:
    if limits == GoodputLimits() or not requests:
        return None
    share = sum(_within(limits, answer) for answer in answers) / requests
    return Goodput(share, _ratio(sum(_within(limits, answer) for answer in ended), busy_s))


def _within(limits: GoodputLimits, answer: Times) -> bool:
    if limits.ttft_s is not None and (answer.ttft is None or answer.ttft > limits.ttft_s):
        return False
    return limits.per_token_s is None or answer.per_token is None or answer.per_token <= limits.per_token_s


def _acceptance_rate(samples: Iterable[Sample]) -> float | None:
    counts = [each for _, each in _speculation(samples)]
    return _ratio(sum(each["accepted"] for each in counts), sum(each["proposed"] for each in counts))


def _tokens_per_target_pass(samples: Iterable[Sample]) -> float | None:
    """Over all passes. The prefill, which gives the first token of an answer, does not count."""
    after = [(tokens - 1, each["tokens_per_target_pass"]) for tokens, each in _speculation(samples)]
    passes = [(tokens, tokens / per_pass) for tokens, per_pass in after if per_pass]
    return _ratio(sum(tokens for tokens, _ in passes), sum(number for _, number in passes))


def _speculation(samples: Iterable[Sample]) -> list[tuple[int, dict[str, float]]]:
    """(completion tokens, speculation) of each `usage` that reports speculation."""
    usages = [sample.answer.usage for sample in samples if sample.answer is not None]
    return [(usage["completion_tokens"], usage["speculation"]) for usage in usages if usage.get("speculation")]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None
