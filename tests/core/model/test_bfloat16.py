"""bfloat16 in NumPy: torch's bits, wherever rounding could go wrong."""

from __future__ import annotations

import numpy as np
import torch

from core.model.bfloat16 import as_dtype, narrowed, widened

EVERY = np.arange(1 << 16, dtype=np.uint16)


def in_torch(words: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(words).view(torch.bfloat16)


def test_every_one_is_widened_and_narrowed_as_torch_does() -> None:
    wide = widened(EVERY)
    np.testing.assert_array_equal(wide.view(np.uint32), in_torch(EVERY).float().numpy().view(np.uint32))
    numbers = ~np.isnan(wide)
    np.testing.assert_array_equal(narrowed(wide)[numbers], EVERY[numbers])
    assert np.isnan(widened(narrowed(wide)[~numbers])).all()


def test_numbers_between_two_are_rounded_as_torch_does() -> None:
    """To the even one in the middle, and up to infinity at the end."""
    low = np.random.default_rng(0).choice([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], 1 << 16).astype(np.uint32)
    wide = (EVERY.astype(np.uint32) << 16 | low).view(np.float32)
    wide = wide[~np.isnan(wide)]
    np.testing.assert_array_equal(narrowed(wide), torch.from_numpy(wide).bfloat16().view(torch.uint16).numpy())


def test_what_has_the_type_is_not_copied() -> None:
    words, numbers = EVERY, np.ones(3, np.float32)
    assert as_dtype(words, "bfloat16") is words
    assert as_dtype(numbers, "float32") is numbers
    assert as_dtype(np.ones(3, np.float16), "bfloat16").tolist() == [0x3F80] * 3
