"""A million seeds: what is drawn has the exact law, at a position, along positions, across seeds and choices.

The draws go through the production sampler; the law they are held against comes from the plain Python reference.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from core.sampling.params import SamplingParams
from tests.core import reference
from tests.core.sampling.drawing import drawn_at, filtered, keys_of

VOCAB = 6
SEEDS = 1_000_000
POSITION = 17
LOGITS = torch.tensor([1.2, 0.3, -0.4, 0.9, -1.1, 0.1])
AFTER = torch.stack([LOGITS.roll(token + 1) * 1.3 for token in range(VOCAB)])  # row t: the logits that follow token t
HISTORY = Counter({0: 2, 3: 1})

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "cold": {"temperature": 0.7},
    "hot": {"temperature": 1.8},
    "top_k": {"top_k": 3},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.3},
    "penalties": {"presence_penalty": 0.6, "frequency_penalty": 0.4},
    "logit_bias": {"logit_bias": {1: 1.5, 0: -2.0}},
    "padded": {},
    "everything": {
        "temperature": 0.8,
        "top_k": 4,
        "top_p": 0.95,
        "min_p": 0.05,
        "presence_penalty": 0.6,
        "frequency_penalty": -0.4,
        "logit_bias": {4: 1.5},
    },
}
NUM_VALID = {"padded": 5, "everything": 5}
CHECKS = 5 * len(CASES)
P_VALUE = 1e-4 / CHECKS  # Bonferroni


class Keys(NamedTuple):
    """[SEEDS] each, seeds 0, 1, 2 ..."""

    here: NDArray[np.int64]
    next: NDArray[np.int64]
    other_choice: NDArray[np.int64]


@pytest.fixture(scope="module")
def keys() -> Keys:
    seeds = np.arange(SEEDS)
    return Keys(keys_of(seeds, 0, POSITION), keys_of(seeds, 0, POSITION + 1), keys_of(seeds, 1, POSITION))


class Toy(NamedTuple):
    """A two-token target under one request's warps: z of the first token, and of the second after each first one."""

    temperature: float
    first: torch.Tensor  # [VOCAB]
    second: torch.Tensor  # [VOCAB, VOCAB]
    first_law: torch.Tensor
    joint_law: torch.Tensor


@pytest.fixture(params=CASES)
def toy(request: pytest.FixtureRequest) -> Toy:
    params = SamplingParams(seed=0, max_tokens=9, **CASES[request.param])
    num_valid = NUM_VALID.get(request.param, VOCAB)
    rows = [_two_rows(min(token, num_valid - 1), params, num_valid) for token in range(VOCAB)]  # no others are drawn
    first_law = _law(LOGITS, params, HISTORY, num_valid)
    after_law = [_law(AFTER[token], params, HISTORY + Counter([token]), num_valid) for token in range(VOCAB)]
    return Toy(
        params.temperature,
        rows[0][0],
        torch.stack([row[1] for row in rows]),
        first_law,
        first_law[:, None] * torch.stack(after_law),
    )


def _two_rows(token: int, params: SamplingParams, num_valid: int) -> torch.Tensor:
    logits = torch.stack([LOGITS, AFTER[token]])
    banned = torch.full((2, VOCAB - num_valid), -math.inf)
    return torch.cat([filtered(logits, params, num_valid, HISTORY, [token]), banned], 1)


def _law(logits: torch.Tensor, params: SamplingParams, counts: Counter[int], num_valid: int) -> torch.Tensor:
    law = reference.law(logits.tolist(), params, counts, num_valid)
    return torch.tensor([law.get(token, 0.0) for token in range(VOCAB)], dtype=torch.float64)


def p_value(drawn: torch.Tensor, law: torch.Tensor) -> float:
    """Chi-square of the drawn cell numbers against the law of the cells; 0 if an impossible cell was drawn."""
    observed = drawn.bincount(minlength=law.numel()).double()
    expected = law.flatten() * len(drawn)
    possible = expected > 0
    if observed[~possible].any():
        return 0.0
    statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = torch.tensor((int(possible.sum()) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))


def test_law_at_one_position(toy: Toy, keys: Keys) -> None:
    assert p_value(drawn_at(toy.first, toy.temperature, keys.here), toy.first_law) > P_VALUE


def test_law_of_another_choice(toy: Toy, keys: Keys) -> None:
    assert p_value(drawn_at(toy.first, toy.temperature, keys.other_choice), toy.first_law) > P_VALUE


def test_law_of_two_neighbouring_positions(toy: Toy, keys: Keys) -> None:
    first = drawn_at(toy.first, toy.temperature, keys.here)
    second = drawn_at(toy.second[first], toy.temperature, keys.next)
    assert p_value(first * VOCAB + second, toy.joint_law) > P_VALUE


def test_seed_and_next_seed_are_independent(toy: Toy, keys: Keys) -> None:
    first = drawn_at(toy.first, toy.temperature, keys.here)
    pairs = first[0::2] * VOCAB + first[1::2]
    assert p_value(pairs, toy.first_law[:, None] * toy.first_law) > P_VALUE


def test_choices_of_one_seed_are_independent(toy: Toy, keys: Keys) -> None:
    first = drawn_at(toy.first, toy.temperature, keys.here)
    other = drawn_at(toy.first, toy.temperature, keys.other_choice)
    assert p_value(first * VOCAB + other, toy.first_law[:, None] * toy.first_law) > P_VALUE


def test_the_check_itself_notices_a_law_that_is_off_by_two_percent(keys: Keys) -> None:
    law = _law(LOGITS, SamplingParams(seed=0, max_tokens=1), Counter(), VOCAB)
    wrong = law * torch.tensor([1.02, 1, 1, 1, 1, 1], dtype=torch.float64)
    drawn = drawn_at(LOGITS, 1.0, keys.here)
    assert p_value(drawn, wrong / wrong.sum()) < P_VALUE < p_value(drawn, law)


@pytest.mark.thorough
def test_a_masked_token_is_never_drawn_in_ten_million_draws() -> None:
    params = SamplingParams(seed=0, max_tokens=1, temperature=2.0, top_k=2)
    z = filtered(torch.tensor([[0.0, 0.1, -9.0, 50.0]]), params, 3)
    assert z.tolist() == [[0.0, pytest.approx(0.1), -math.inf]]
    drawn = torch.zeros(3, dtype=torch.int64)
    for start in range(0, 10_000_000, 1_000_000):
        seeds = np.arange(start, start + 1_000_000)
        drawn += drawn_at(z, params.temperature, keys_of(seeds, 0, 3)).bincount(minlength=3)
    assert drawn[2] == 0
    assert drawn.sum() == 10_000_000
