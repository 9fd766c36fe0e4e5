"""Top-k, top-p and min-p by examples; test_sampler.py holds them against the reference on random requests."""

from __future__ import annotations

import math

import torch

from core.sampling.params import SamplingParams
from tests.core.sampling.drawing import filtered, of


def one_row(logits: list[float], **knobs: float) -> dict[int, float]:
    params = SamplingParams(seed=0, max_tokens=1, **{"temperature": 1.0, **knobs})
    return of(filtered(torch.tensor([logits]), params, len(logits))[0])


def test_top_k_keeps_the_lowest_ids_of_equal_logits() -> None:
    assert one_row([1.0, 3.0, 2.0, 2.0, 2.0], top_k=3) == {1: 3.0, 2: 2.0, 3: 2.0}


def test_top_p_keeps_the_token_that_crosses_the_mass_and_not_the_one_after() -> None:
    quarter = [0.0, 0.0, 0.0, 0.0]
    assert list(one_row(quarter, top_p=0.5)) == [0, 1]
    assert list(one_row(quarter, top_p=0.500001)) == [0, 1, 2]
    assert list(one_row(quarter, top_p=1e-9)) == [0]
    assert list(one_row(quarter, top_p=5e-324)) == [0]  # its product with any mass is 0


def test_top_p_counts_the_mass_top_k_left() -> None:
    halves_and_rest = [math.log(4.0), math.log(4.0), math.log(2.0), math.log(2.0)]
    assert list(one_row(halves_and_rest, top_p=0.6)) == [0, 1]
    assert list(one_row(halves_and_rest, top_p=0.45)) == [0, 1]
    assert list(one_row(halves_and_rest, top_k=2, top_p=0.45)) == [0]


def test_top_p_beyond_the_first_look_counts_every_token() -> None:
    flat = [0.0] * 1000
    assert list(one_row(flat, top_p=0.25)) == list(range(250))
    assert list(one_row(flat, top_p=0.75)) == list(range(750))


def test_min_p_of_one_keeps_the_most_likely_and_its_equals() -> None:
    assert one_row([1.0, 2.0, 2.0, 1.999], min_p=1.0) == {1: 2.0, 2: 2.0}


def test_min_p_is_relative_to_the_most_likely_at_the_request_s_temperature() -> None:
    logits = [0.0, -1.0]
    assert list(one_row(logits, min_p=0.3)) == [0, 1]  # e^-1 = .37
    assert list(one_row(logits, min_p=0.3, temperature=0.5)) == [0]  # e^-2 = .14
