"""NumPy's arrays and torch's tensors: the same numbers, whichever holds them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.arrays import converted, highest, namespace, on_cpu
from core.sampling.gumbel import gumbel, keys, lanes, words
from core.sampling.params import SamplingParams
from core.sampling.sampler import Sampling, sample, score

SIZE = 60


def test_the_library_is_told_by_the_device() -> None:
    array, tensor = np.zeros(3), torch.zeros(3)
    assert (namespace(array.device), namespace(tensor.device)) == (np, torch)
    assert on_cpu(array.device)
    assert on_cpu(tensor.device)
    assert not on_cpu(torch.device("meta"))


def test_the_highest_of_each_row() -> None:
    numbers = np.random.default_rng(0).integers(-9, 9, (20, 30)).astype(np.float32)
    numbers[3] = -np.inf
    numbers[4, :2] = np.nan
    for count in (1, 7, 30):
        expected = torch.from_numpy(numbers).topk(count).values
        np.testing.assert_array_equal(highest(numbers, count), expected)
        np.testing.assert_array_equal(highest(torch.from_numpy(numbers), count), expected)


def test_a_type_that_is_there_is_not_copied() -> None:
    array, tensor = np.zeros(3, np.float32), torch.zeros(3)
    assert converted(array, "float32") is array
    assert converted(tensor, "float32") is tensor
    assert converted(array, "int64").dtype == np.int64
    assert converted(tensor, "int64").dtype == torch.int64


@pytest.mark.parametrize("seed", [0, -5, 2**63 - 1, -(2**63)])
def test_the_noise_is_the_same_to_the_bit(seed: int) -> None:
    """Of a million numbers; one in a billion may differ in its last bit."""
    ours = keys([(seed, 1, position) for position in range(7, 263)])
    theirs = torch.from_numpy(ours)
    for asked in (4096, np.arange(0, 12000, 3)):
        ids = asked if isinstance(asked, int) else torch.from_numpy(asked)
        made = words(ours[:, None], lanes(asked, ours.device))
        np.testing.assert_array_equal(made, words(theirs[:, None], lanes(ids, theirs.device)))
        np.testing.assert_array_equal(gumbel(ours, asked), gumbel(theirs, ids))


KNOBS = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.0, 0.3, 1.0, 1.7]), "seed": st.integers(0, 1000)},
    optional={
        "top_k": st.integers(1, SIZE + 1),
        "top_p": st.floats(0.01, 1.0),
        "min_p": st.floats(0.0, 1.0),
        "presence_penalty": st.floats(-2.0, 2.0),
        "frequency_penalty": st.floats(-2.0, 2.0),
        "logit_bias": st.dictionaries(st.integers(0, SIZE - 1), st.floats(-100.0, 100.0), max_size=4),
    },
)


@given(st.lists(KNOBS, min_size=1, max_size=4), st.booleans(), st.integers(0, 1000))
def test_any_requests_have_the_same_scores(knobs: list[dict[str, Any]], some: bool, seed: int) -> None:
    dice = np.random.default_rng(seed)
    ids = np.sort(dice.permutation(SIZE)[:25]) if some else SIZE
    sessions = [Sampling(SamplingParams(max_tokens=9, **one), 0, 5, Counter({3: 2, 40: 1}), (3, 8)) for one in knobs]
    logits = dice.normal(scale=3.0, size=(3 * len(sessions), SIZE + 4)).astype(np.float32).round(1)  # some are equal
    theirs = ids if isinstance(ids, int) else torch.from_numpy(ids)
    ours: Any = score(logits, sessions, ids)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, score(torch.from_numpy(logits), sessions, theirs))
    highest_scores = ours.argmax(-1)
    drawn = (highest_scores if isinstance(ids, int) else ids[highest_scores]).tolist()
    assert sample(logits, sessions, ids) == sample(torch.from_numpy(logits), sessions, theirs) == drawn
