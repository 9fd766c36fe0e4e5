"""Rotary position embedding as two tables of cosines and sines, one row per position."""

from __future__ import annotations

import math

import torch

from core.model.config import ModelConfig, RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """The angle per position of each pair of dimensions, fp32 [head_dim / 2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / rope.theta**exponents
    if rope.type == "linear":
        return plain / rope.factor
    if rope.type == "llama3":
        return _by_parts(plain, rope)
    return plain


def _by_parts(plain: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    """Llama 3.1 scaling: pairs that turn often in the original context stay, rare ones are slowed by `factor`.

    Pairs in between are blended: `keep` is 1 for a pair that stays and 0 for a pair that is slowed.
    """
    turns = rope.original_context * plain / (2 * math.pi)
    keep = ((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)).clamp(0.0, 1.0)
    return keep * plain + (1 - keep) * plain / rope.factor


class Rotary:
    """The tables of one model: `cos` and `sin`, [context, 1, head_dim] in the model's dtype."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        positions = torch.arange(config.context, dtype=torch.float32)
        angles = torch.outer(positions, inverse_frequencies(config.rope, config.head_dim))
        # A head's dimensions i and i + head_dim/2 form a pair; the first of a pair takes minus its partner's sine.
        cos, sin = angles.cos(), angles.sin()
        self.cos = torch.cat([cos, cos], -1).unsqueeze(1).to(device, dtype)
        self.sin = torch.cat([-sin, sin], -1).unsqueeze(1).to(device, dtype)


def rotate_(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate `heads` [rows, num_heads, head_dim] in place by `cos` and `sin` [rows, 1, head_dim].

    Product and sum stay two operations: a fused one may round differently in the tail of a vector than in its body.
    """
    partner = torch.roll(heads, heads.shape[-1] // 2, -1)
    torch.add(heads * cos, partner.mul_(sin), out=heads)
