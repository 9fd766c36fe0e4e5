"""Noise for contenders alone: the winner of a row is the one that whole rows of noise give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from core.sampling import sampler
from core.sampling.gumbel import gumbel
from core.sampling.params import SamplingParams
from core.sampling.sampler import Sampling, sample
from tests.core.sampling.drawing import keys_of, one_session
from tests.examples import examples

SIZE = 700
SHAPES = ("flat", "peak", "steps", "usual", "steep", "huge", "rounded")
STRANGE = st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -3e38, 40.0])
ODD = st.dictionaries(st.integers(0, SIZE - 1), STRANGE, max_size=5)
TEMPERATURES = st.sampled_from([1e-5, 0.01, 0.3, 0.7, 1.0, 1.4, 2.0]) | st.floats(1e-5, 2.0)


def logits_of(shape: str, dice: np.random.Generator) -> NDArray[np.float32]:
    normal = dice.normal(size=SIZE)
    rows = {
        "flat": np.zeros(SIZE),
        "peak": np.where(np.arange(SIZE) == dice.integers(SIZE), 25.0, 0.0),
        "steps": np.floor(3 * normal),
        "usual": 3 * normal,
        "steep": 30 * normal,
        "huge": 1e30 * normal,
        "rounded": 2.0**24 + np.round(2 * normal),  # where a little noise is rounded away
    }
    return rows[shape].astype(np.float32)


def whole_rows(z: NDArray[np.float32], session: Sampling, ids: Any) -> NDArray[np.int64]:
    """The columns of the highest scores, with noise for all."""
    params = session.params
    noise = gumbel(keys_of(params.seed, session.choice, session.first_position + np.arange(len(z))), ids)
    return np.argmax(z + np.float32(params.temperature) * noise, -1)


@settings(max_examples=examples(400))
@given(
    st.lists(st.tuples(st.sampled_from(SHAPES), ODD), min_size=1, max_size=4),
    TEMPERATURES,
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.sampled_from([1, 100, sampler.WORDS_AT_ONCE]),
)
def test_the_winner_is_that_of_whole_rows(
    rows: list[tuple[str, dict[int, float]]], temperature: float, seed: int, some: bool, words_at_once: int
) -> None:
    dice = np.random.default_rng(abs(seed))
    z = np.stack([logits_of(shape, dice) for shape, _ in rows])
    for row, (_, odd) in zip(z, rows, strict=True):
        row[list(odd)] = list(odd.values())
    ids = np.sort(dice.permutation(50_000)[:SIZE]) if some else SIZE
    params = SamplingParams(seed=seed, max_tokens=1, temperature=temperature)
    session = one_session(params, 1, int(dice.integers(5000)), proposed=[0] * (len(rows) - 1))
    columns = whole_rows(z, session, ids)
    tokens = (columns if isinstance(ids, int) else ids[columns]).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "FEW", 0)
        patch.setattr(sampler, "WORDS_AT_ONCE", words_at_once)
        assert sample(z, [session], ids) == tokens
        assert sample(torch.from_numpy(z), [session], ids if isinstance(ids, int) else torch.from_numpy(ids)) == tokens


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 2.0])
def test_thousands_of_winners_are_those_of_whole_rows(shape: str, temperature: float) -> None:
    z = np.stack([logits_of(shape, np.random.default_rng(number)) for number in range(3000)])
    params = SamplingParams(seed=9, max_tokens=1, temperature=temperature)
    session = one_session(params, proposed=[0] * (len(z) - 1))
    assert sample(z, [session], SIZE) == whole_rows(z, session, SIZE).tolist()


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0])
def test_few_ids_contend(temperature: float) -> None:
    z = np.stack([logits_of("usual", np.random.default_rng(number)) for number in range(300)])
    keys = keys_of(5, 0, range(300))
    scores = sampler._contenders(z, np.full((300, 1), temperature, np.float32), keys, SIZE)
    assert 1 <= np.isfinite(scores).sum() / 300 < SIZE / 5
