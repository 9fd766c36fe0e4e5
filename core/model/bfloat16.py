"""bfloat16 for NumPy, which lacks it: words of 16 bits, held as uint16. Nothing else in a model has that type."""

from __future__ import annotations

from typing import Any, Literal, TypeGuard, get_args

import numpy as np
from numpy.typing import NDArray

Dtype = Literal["float32", "bfloat16"]
"""What a model computes with, by torch's names."""

DTYPES: tuple[Dtype, ...] = get_args(Dtype)

Weight = NDArray[Any]
"""float32 or float16, or bfloat16 as uint16."""


def is_dtype(name: str) -> TypeGuard[Dtype]:
    """Whether models compute with the type of this name."""
    return name in DTYPES


def widened(weight: Weight) -> NDArray[np.float32]:
    """The same numbers in float32; the array itself if they are."""
    if weight.dtype == np.uint16:
        return (weight.astype(np.uint32) << 16).view(np.float32)
    return weight.astype(np.float32, copy=False)


def narrowed(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each number, of two the even one; what is no number stays none."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(numbers), np.uint16(0x7FC0), rounded)


def as_dtype(weight: Weight, dtype: Dtype) -> Weight:
    """The weight in this type; itself if it has that."""
    if dtype == "float32" or weight.dtype == np.uint16:
        return widened(weight) if dtype == "float32" else weight
    return narrowed(widened(weight))


def scaled(weight: Weight, factor: float) -> Weight:
    """Times a factor of its own type, and rounded to that."""
    if weight.dtype != np.uint16:
        product: Weight = weight * np.array(factor, weight.dtype)
        return product
    return narrowed(widened(weight) * widened(narrowed(np.array([factor], np.float32))))
