"""Rotary position embedding as two tables of cosines and sines, one row per position."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from core.model.config import ModelConfig, RopeConfig

Table = NDArray[np.float32]


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Table:
    """The angle per position of each pair of dimensions, fp32 [head_dim / 2]."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    powers = np.power(rope.theta, exponents, dtype=np.float64).astype(np.float32)
    if rope.divisors:
        powers *= np.array(rope.divisors, np.float32)
    plain: Table = np.float32(1.0) / powers
    if rope.type == "linear":
        return plain / np.float32(rope.factor)
    return _by_parts(plain, rope) if rope.type == "llama3" else plain


def _by_parts(plain: Table, rope: RopeConfig) -> Table:
    """Llama 3.1 scaling: pairs that turn often in the original context stay, rare ones are slowed by `factor`.

    Pairs in between are blended: `keep` is 1 for a pair that stays and 0 for a pair that is slowed.
    """
    turns = rope.original_context * plain / (2 * math.pi)
    keep = ((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)).clip(0.0, 1.0)
    return (keep * plain + (1 - keep) * plain / rope.factor).astype(np.float32, copy=False)


class Rotary:
    """The tables of one embedding: `cos` and `sin`, fp32 [context, 1, head_dim].

    Angles are rounded to fp32 as in transformers; their cosines and sines are the nearest fp32 numbers.
    """

    def __init__(self, rope: RopeConfig, context: int, head_dim: int) -> None:
        positions = np.arange(context, dtype=np.float32)
        angles = np.outer(positions, inverse_frequencies(rope, head_dim)).astype(np.float64)
        # A head's dimensions i and i + head_dim/2 form a pair; the first of a pair takes minus its partner's sine.
        cos, sin = ((rope.magnitude * part).astype(np.float32) for part in (np.cos(angles), np.sin(angles)))
        self.cos = np.concatenate([cos, cos], -1)[:, None]
        self.sin = np.concatenate([-sin, sin], -1)[:, None]


def rotary_tables(config: ModelConfig) -> dict[RopeConfig, Rotary]:
    """The tables of every rotary embedding that a layer of the model has."""
    ropes = dict.fromkeys(layer.rope for layer in config.layers)
    return {rope: Rotary(rope, config.context, config.head_dim) for rope in ropes}
