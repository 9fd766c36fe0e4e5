"""Figures of a load against hand-made answers, whose chunks came at times written down here."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from core.text.prompts import Prompt
from serve_app.client import Answer, BadAnswer
from serve_app.load.figures import Figures, Goodput, GoodputLimits, Spread, figures
from serve_app.load.pairs import Paired, paired
from serve_app.load.sending import Arrivals, Measured, Mode, NumberedPrompt, Round, Sample, Streams
from serve_app.load.times import Times

ONE = Streams(1)
NO_LIMITS = GoodputLimits()


def answer(arrivals: list[float], runs: list[int] | None = None, usage: dict[str, Any] | None = None) -> Answer:
    """Chunks at `arrivals`, of `runs` token ids each, or of a text that nobody counted."""
    tokens = list(range(sum(runs or ())))
    return Answer(
        tokens, "x" * len(arrivals), "stop", runs or [0] * len(arrivals), arrivals=arrivals, usage=usage or {}
    )


def spoken(tokens: int, proposed: int, accepted: int, per_pass: float | None) -> dict[str, Any]:
    told = {"task": "math", "proposed": proposed, "accepted": accepted, "tokens_per_target_pass": per_pass}
    return {"completion_tokens": tokens, "speculation": told}


def asked(number: int, due: float, said: Answer | None, text: str = "") -> Sample:
    error = None if said else BadAnswer("the service said 503: busy", 503)
    return Sample(NumberedPrompt(number, Prompt(prompt=text or f"prompt {number}")), due, said, error)


def level(*samples: Sample, began: float = 0.0, until: float | None = 100.0, mode: Mode = "on") -> Measured:
    return Measured(ONE, [Round(mode, began, list(samples), until)])


def of(measured: Measured, limits: GoodputLimits = NO_LIMITS, mode: Mode = "on") -> Figures:
    return figures(measured, mode, limits)


def test_a_chunk_of_tokens_is_so_many_tokens_at_one_time() -> None:
    found = of(level(asked(0, 10.0, answer([10.5, 10.7, 11.5], [1, 4, 2]))))
    assert (found.requests, found.answered, found.tokens, found.counted_by) == (1, 1, 7, ["token ids"])
    assert found.ttft_s == pytest.approx(Spread(0.5, 0.5, 0.5, 0.5))
    times = Times(answer([10.5, 10.7, 11.5], [1, 4, 2]), 10.0)
    assert sorted(times.token_gaps) == pytest.approx([0, 0, 0, 0, 0.2, 0.8])
    assert times.after_first_chunk == pytest.approx((6, 1.0))
    assert found.user_tokens_per_s is not None
    assert found.user_tokens_per_s.p50 == pytest.approx(6.0)
    assert found.chunk_gap_s is not None
    assert found.chunk_gap_s.p50 == pytest.approx(0.5)
    assert found.inter_token_s is not None
    assert found.inter_token_s.p50 == 0.0


def test_tokens_of_the_first_chunk_are_not_in_the_rate_after_it() -> None:
    assert Times(answer([1.0, 2.0], [5, 3]), 0.0).after_first_chunk == (3, 1.0)


@pytest.mark.parametrize(
    ("usage", "counted", "tokens", "after"),
    [({"completion_tokens": 9}, "usage", 9, 8), ({}, "chunks", 3, 2), ({"completion_tokens": None}, "chunks", 3, 2)],
)
def test_without_token_ids_usage_counts_and_without_usage_chunks(
    usage: dict[str, Any], counted: str, tokens: int, after: int
) -> None:
    times = Times(answer([1.0, 1.5, 3.0], usage=usage), 0.5)
    assert (times.counted_by, times.tokens, times.after_first_chunk) == (counted, tokens, (after, 2.0))
    assert len(times.token_gaps) == tokens - 1
    assert sum(times.token_gaps) == pytest.approx(2.0)
    assert times.tokens_until(1.5) == pytest.approx(tokens * 2 / 3)


def test_an_answer_of_one_chunk_or_of_none_has_no_rate() -> None:
    found = of(level(asked(0, 0.0, answer([1.0], [1])), asked(1, 0.0, answer([]))))
    assert (found.answered, found.tokens) == (2, 1)
    assert (found.user_tokens_per_s, found.per_token_s, found.inter_token_s, found.chunk_gap_s) == (None,) * 4
    assert found.ttft_s == Spread(1.0, 1.0, 1.0, 1.0)


def test_rates_in_all_are_over_the_time_of_the_whole_load() -> None:
    within, beyond = answer([1.0, 2.0, 3.0], [1, 2, 3]), answer([2.0, 3.0, 5.0], [1, 4, 40])
    found = of(level(asked(0, 0.0, within), asked(1, 0.0, beyond), began=0.0, until=4.0))
    assert (found.busy_s, found.tokens, found.tokens_per_s, found.requests_per_s) == (4.0, 51, 11 / 4, 1 / 4)


def test_rounds_of_a_mode_add_up_and_the_other_mode_stays_out() -> None:
    rounds = [
        Round("on", 0.0, [asked(0, 0.0, answer([1.0, 2.0], [1, 1]))], 2.0, cpu_s=1.0, wall_s=2.0),
        Round("off", 2.0, [asked(0, 2.0, answer([3.0, 9.0], [1, 1]))], 9.0, cpu_s=7.0, wall_s=7.0),
        Round("on", 9.0, [asked(1, 9.0, answer([9.5, 10.0], [1, 5]))], 11.0, cpu_s=0.0, wall_s=2.0),
    ]
    found = of(Measured(ONE, rounds))
    assert (found.busy_s, found.tokens, found.tokens_per_s, found.client_cpu) == (4.0, 8, 2.0, 0.25)
    assert of(Measured(ONE, rounds), mode="off").tokens == 2


def test_of_a_round_that_was_broken_off_only_whole_answers_count() -> None:
    found = of(level(asked(0, 1.0, answer([1.5, 3.0], [1, 3])), began=1.0, until=None))
    assert (found.busy_s, found.tokens_per_s) == (2.0, 2.0)
    assert of(level(began=1.0, until=None)).tokens_per_s is None


def test_goodput_counts_what_failed_as_missed() -> None:
    samples = [
        asked(0, 0.0, answer([0.4, 1.4], [1, 10])),  # 0.1 s per token
        asked(1, 0.0, answer([0.6, 1.6], [1, 10])),  # late
        asked(2, 0.0, answer([0.4, 3.4], [1, 10])),  # slow
        asked(3, 0.0, answer([0.4], [1])),  # all of it in time
        asked(4, 0.0, None),
    ]
    both = of(level(*samples, until=10.0), GoodputLimits(0.5, 0.2))
    assert both.goodput == Goodput(2 / 5, 2 / 10)
    assert both.failed == {"the service said 503: busy": 1}
    assert of(level(*samples, until=10.0), GoodputLimits(ttft_s=0.5)).goodput == Goodput(3 / 5, 3 / 10)
    assert of(level(*samples, until=10.0), GoodputLimits(per_token_s=0.2)).goodput == Goodput(3 / 5, 3 / 10)
    assert of(level(*samples, until=10.0)).goodput is None


def test_acceptance_is_over_all_answers_and_needs_to_be_told() -> None:
    told = [spoken(11, 20, 5, 2.0), spoken(101, 100, 90, 10.0), spoken(1, 0, 0, None)]
    found = of(level(*[asked(n, 0.0, answer([1.0, 2.0], usage=usage)) for n, usage in enumerate(told)]))
    assert found.acceptance_rate == pytest.approx(95 / 120)
    assert found.tokens_per_target_pass == pytest.approx(110 / (5 + 10))
    silent = of(level(asked(0, 0.0, answer([1.0], usage={"completion_tokens": 1}))))
    assert (silent.acceptance_rate, silent.tokens_per_target_pass) == (None, None)


def both_modes(*pairs: tuple[str, list[int], float, float]) -> Measured:
    """(prompt, tokens of each chunk, seconds with speculation, seconds without) of two chunks each."""
    on = [asked(n, 0.0, answer([1.0, 1.0 + fast], runs), text) for n, (text, runs, fast, _) in enumerate(pairs)]
    off = [asked(n, 0.0, answer([1.0, 1.0 + slow], runs), text) for n, (text, runs, _, slow) in enumerate(pairs)]
    return Measured(ONE, [Round("on", 0.0, on, 100.0), Round("off", 100.0, off, 200.0)])


def test_the_paired_ratio_is_of_sums_and_its_interval_holds_what_every_prompt_says() -> None:
    same = paired(both_modes(("a", [1, 10], 1.0, 2.0), ("b", [1, 40], 4.0, 8.0), ("c", [1, 4], 0.5, 1.0)))
    assert same == Paired(3, 3, 2.0, 2.0, 2.0)
    mixed = paired(both_modes(("a", [1, 10], 1.0, 3.0), ("b", [1, 40], 8.0, 8.0), ("c", [1, 10], 1.0, 2.0)))
    assert mixed.ratio == pytest.approx(13 / 10)
    assert mixed.low == pytest.approx(1.0)
    assert mixed.high == pytest.approx(3.0)


def test_answers_to_one_prompt_are_drawn_together() -> None:
    one = paired(both_modes(("a", [1, 10], 1.0, 3.0), ("a", [1, 10], 1.0, 1.0)))
    assert one == Paired(2, 2, 2.0, None, None)


def test_answers_that_differ_are_counted_and_a_lone_one_is_no_pair() -> None:
    measured = both_modes(("a", [1, 10], 1.0, 2.0), ("b", [1, 10], 1.0, 2.0))
    answers = [sample.answer for sample in measured.rounds[1].samples]
    assert answers[0] is not None
    answers[0].tokens[3] = 99
    measured.rounds[0].samples.append(asked(7, 0.0, answer([1.0, 2.0], [1, 1])))
    found = paired(measured)
    assert (found.pairs, found.equal) == (2, 1)
    assert paired(both_modes(("a", [1], 0.0, 0.0))).ratio is None


def test_levels_are_told_in_words_and_as_json() -> None:
    levels = (Streams(1), Streams(8), Arrivals(2.5))
    assert [str(each) for each in levels] == ["1 stream", "8 streams", "2.5 requests/s"]
    plain = json.loads(msgspec.json.encode(of(level(asked(0, 0.0, answer([1.0, 2.0], [1, 1]))))))
    assert (plain["level"], plain["speculation"], plain["ttft_s"]["p99"]) == ({"streams": 1}, "on", 1.0)
