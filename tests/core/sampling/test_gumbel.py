"""The numbers of the dice: fixed bits, the same wherever they are asked for, always finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.sampling.gumbel import SLACK, gumbel, gumbel_of, keys, lanes, lowest_word, words
from core.sampling.params import SamplingParams
from core.sampling.sampler import sample
from tests.core import reference
from tests.core.sampling.drawing import keys_of, one_session

INT64 = st.integers(-(2**63), 2**63 - 1)


def word(seed: int, choice: int, position: int, token: int) -> int:
    return int(words(keys([(seed, choice, position)]), lanes(token + 1, "cpu")[token:])[0]) % 2**64


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ((0, 0, 0, 0), 0x2130748AAAC80268),
        ((0, 0, 0, 1), 0x0CC78FB979CE5090),
        ((7, 0, 12, 345), 0xA2DB5231380742C9),
        ((7, 1, 12, 345), 0xE53940AD8CEF86B6),
    ],
)
def test_golden_bits(at: tuple[int, int, int, int], expected: int) -> None:
    assert word(*at) == expected


@given(INT64, st.integers(0, 127), st.integers(0, 1 << 20), st.integers(0, 3000))
def test_bits_follow_the_formula_for_any_seed(seed: int, choice: int, position: int, token: int) -> None:
    assert word(seed, choice, position, token) == reference.bits(seed, choice, position, token)


@given(st.lists(st.tuples(INT64, st.integers(0, 3), st.integers(0, 4096)), min_size=1, max_size=5))
def test_many_keys_are_made_as_each_alone(places: list[tuple[int, int, int]]) -> None:
    assert keys(places).tolist() == [int(keys([place])[0]) for place in places]


def test_gumbel_of_the_lowest_and_highest_word_is_finite() -> None:
    lowest, highest = gumbel_of(torch.tensor([0, -(1 << 32)])).tolist()
    assert lowest == pytest.approx(-math.log(-math.log(2**-33)))
    assert highest == pytest.approx(-math.log(-math.log1p(-(2**-33))))


def test_gumbel_is_a_token_s_own_number_whatever_the_padding_and_the_rows_around_it() -> None:
    places = keys_of(11, 2, range(90, 98))
    block = gumbel(places, 2055)
    for row in range(8):
        for width in (1, 2047, 2048):
            np.testing.assert_array_equal(gumbel(places[row : row + 1], width)[0], block[row, :width])


@given(st.sets(st.integers(0, 3000), min_size=1, max_size=40))
def test_gumbel_is_a_token_s_own_number_among_whichever_ids_it_is_asked_for(tokens: set[int]) -> None:
    ids, places = np.array(sorted(tokens)), keys_of(11, 2, [4, 90])
    np.testing.assert_array_equal(gumbel(places, ids), gumbel(places, 3001)[:, ids])


def test_gumbel_follows_the_formula() -> None:
    block = gumbel(keys_of(-5, 1, [3, 4000]), 500)
    for row, position in zip(block, (3, 4000), strict=True):
        expected = [reference.gumbel(-5, 1, position, token) for token in range(500)]
        np.testing.assert_allclose(row, np.array(expected, np.float32), rtol=1e-6, atol=1e-7)


@given(st.floats(-3.5, 40.0, width=32))
def test_no_word_under_the_lowest_word_of_a_noise_has_a_higher_one(noise: float) -> None:
    [lowest] = lowest_word(np.array([noise], np.float32)).tolist()
    under, at = gumbel_of(np.array([max(0, lowest - 1), lowest], np.uint64).view(np.int64)).tolist()
    assert (under <= noise and lowest) or noise < -3
    assert at > noise - 2 * SLACK or not -2 < noise < 10  # further out words are far apart


def test_temperature_zero_is_the_argmax_and_ties_go_to_the_lowest_id() -> None:
    z = torch.tensor([[0.0, 2.0, 2.0, 1.0], [-math.inf, -3.0, -3.0, -3.0]])
    for temperature in (0.0, 0.9e-5):
        params = SamplingParams(seed=1, max_tokens=1, temperature=temperature)
        assert sample(z, [one_session(params, proposed=(0,))], 4) == [1, 1]


def test_ties_of_noisy_logits_go_to_the_lowest_id() -> None:
    z = torch.tensor([[0.0, 1e9, 1e9, 1e9]]).expand(9, -1)  # noise is lost in them
    assert sample(z, [one_session(SamplingParams(seed=3, max_tokens=1), proposed=[0] * 8)], 4) == [1] * 9


def test_the_first_choice_of_several_is_the_only_choice_of_one() -> None:
    z = torch.zeros(4, 300)
    params = SamplingParams(seed=99, max_tokens=1)
    first, second = (sample(z, [one_session(params, choice, proposed=(0, 0, 0))], 300) for choice in (0, 1))
    assert first == [max(range(300), key=lambda v: reference.gumbel(99, 0, i, v)) for i in range(4)]
    assert second == [max(range(300), key=lambda v: reference.gumbel(99, 1, i, v)) for i in range(4)]
