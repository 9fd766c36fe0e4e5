"""The numbers of the dice: fixed bits, the same wherever they are asked for, always finite."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.sampling import gumbel as dice
from core.sampling.gumbel import Ids, NoiseWindow, bits, gumbel, gumbel_of
from core.sampling.params import SamplingParams
from core.sampling.sampler import sample
from tests.core import reference
from tests.core.sampling.drawing import drawn_with, one_session

INT64 = st.integers(-(2**63), 2**63 - 1)


def word(seed: int, choice: int, position: int, token: int) -> int:
    return int(bits(seed, choice, torch.tensor([position]), token + 1)[0, token]) % 2**64


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


@given(st.lists(INT64, min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 4096))
def test_a_vector_of_seeds_throws_the_dice_of_each_seed(seeds: list[int], choice: int, position: int) -> None:
    together = bits(torch.tensor(seeds), choice, torch.tensor(position), 7)
    alone = [bits(seed, choice, torch.tensor([position]), 7) for seed in seeds]
    assert torch.equal(together, torch.cat(alone))


def test_gumbel_of_the_lowest_and_highest_word_is_finite() -> None:
    lowest, highest = gumbel_of(torch.tensor([0, -(1 << 32)])).tolist()
    assert lowest == pytest.approx(-math.log(-math.log(2**-33)))
    assert highest == pytest.approx(-math.log(-math.log1p(-(2**-33))))


def test_gumbel_is_a_token_s_own_number_whatever_the_padding_and_the_rows_around_it() -> None:
    positions = torch.arange(90, 98)
    block = gumbel(11, 2, positions, 2055)
    for row, position in enumerate(positions):
        for width in (1, 2047, 2048):
            assert torch.equal(gumbel(11, 2, position.view(1), width)[0], block[row, :width])


@given(st.sets(st.integers(0, 3000), min_size=1, max_size=40))
def test_gumbel_is_a_token_s_own_number_among_whichever_ids_it_is_asked_for(tokens: set[int]) -> None:
    ids, positions = torch.tensor(sorted(tokens)), torch.tensor([4, 90])
    assert torch.equal(gumbel(11, 2, positions, ids), gumbel(11, 2, positions, 3001)[:, ids])


def test_gumbel_follows_the_formula() -> None:
    block = gumbel(-5, 1, torch.tensor([3, 4000]), 500)
    for row, position in enumerate((3, 4000)):
        expected = [reference.gumbel(-5, 1, position, token) for token in range(500)]
        torch.testing.assert_close(block[row], torch.tensor(expected), rtol=1e-6, atol=1e-7)


def test_temperature_zero_is_the_argmax_and_ties_go_to_the_lowest_id() -> None:
    z = torch.tensor([[0.0, 2.0, 2.0, 1.0], [-math.inf, -3.0, -3.0, -3.0]])
    for temperature in (0.0, 0.9e-5):
        params = SamplingParams(seed=1, max_tokens=1, temperature=temperature)
        assert sample(z, [one_session(params, proposed=(0,))], 4) == [1, 1]


def test_ties_of_noisy_logits_go_to_the_lowest_id() -> None:
    z = torch.tensor([[1.0, 2.0, 3.0]])
    noise = torch.tensor([[2.0, 1.0, -math.inf]])
    assert drawn_with(z, 1.0, noise).tolist() == [0]


def test_the_first_choice_of_several_is_the_only_choice_of_one() -> None:
    z = torch.zeros(4, 300)
    params = SamplingParams(seed=99, max_tokens=1)
    first, second = (sample(z, [one_session(params, choice, proposed=(0, 0, 0))], 300) for choice in (0, 1))
    assert first == [max(range(300), key=lambda v: reference.gumbel(99, 0, i, v)) for i in range(4)]
    assert second == [max(range(300), key=lambda v: reference.gumbel(99, 1, i, v)) for i in range(4)]


@pytest.mark.parametrize("ids", [33, torch.tensor([2, 3, 500])], ids=["all", "some"])
def test_a_window_gives_the_rows_whatever_is_asked_of_it(ids: Ids) -> None:
    window, device, where = NoiseWindow(5, 2), torch.device("cpu"), 100
    turns = Random(3)
    for _ in range(200):
        where = max(0, where + turns.randint(-8, 12)) if turns.random() < 0.95 else turns.randint(0, 5000)
        count = turns.randint(1, 20)
        wanted = gumbel(5, 2, torch.arange(where, where + count), ids)
        assert torch.equal(window.rows(where, count, ids, device), wanted)


def test_a_window_makes_every_row_once_and_keeps_few(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    original = dice.gumbel

    def counted(seed: int, choice: int, positions: torch.Tensor, vocab_size: int) -> torch.Tensor:
        made.extend(positions.tolist())
        return original(seed, choice, positions, vocab_size)

    monkeypatch.setattr(dice, "gumbel", counted)
    window = NoiseWindow(5, 0)
    for first in range(0, 400, 4):
        window.rows(first, 7, 33, torch.device("cpu"))
        window.rows(max(0, first - 3), 7, 33, torch.device("cpu"))
        assert window._made is not None
        assert len(window._made) <= 3 * dice.ROWS_AT_ONCE
    assert made == sorted(set(made))
