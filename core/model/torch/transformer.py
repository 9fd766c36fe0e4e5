"""The LLaMA-family layers: embedding, decoder layers, final norm. Rows in, hidden states out, keys and values cached.

Linear layers run over the concatenated rows of a pass; only attention knows which rows belong together. In bf16 the
same steps are rounded as in transformers, except that a norm multiplies by its weight before it rounds. Norms and
softmax are computed in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812

from core.model.config import ModelConfig
from core.model.rotary import Rotary
from core.model.tensor_views import as_tensor
from core.model.torch.linear import Linear, padded
from core.model.torch.plan import Plan

# torch splits longer elementwise work between threads at any place, and `exp` rounds differently at the split.
_UNCUT_NUMEL = 32767


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one decoder layer. `qkv` and `gate_up` are stacked matrices of the checkpoint.

    `qk_norm` [heads + kv heads, head_dim] is the norm weight of every query and key head, or None.
    """

    input_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Transformer:
    """A decoder without its head. Hidden states are [rows, hidden_size] in the model's dtype."""

    def __init__(self, config: ModelConfig, embedding: torch.Tensor, layers: list[Layer], norm: torch.Tensor) -> None:
        self._config = config
        self._embedding = embedding
        self._layers = layers
        linears = [linear for layer in layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        self._sizes = {linear.sizes for linear in linears}
        self._norm = norm
        rotary = Rotary(config)
        self._cos, self._sin = (as_tensor(table).to(embedding) for table in (rotary.cos, rotary.sin))

    def __call__(self, plan: Plan, cache: torch.Tensor) -> torch.Tensor:
        """Run one pass over the rows of `plan`; `cache` is [layers, 2 * kv heads, pages, ...]."""
        x = F.embedding(plan.tokens, self._embedding)
        cos, sin = (table.index_select(0, plan.positions) for table in (self._cos, self._sin))
        for layer, layer_cache in zip(self._layers, cache.unbind(0), strict=True):
            heads = self._heads(layer, self._normed(x, layer.input_norm), cos, sin)
            x = x + layer.out(self._attention(heads, plan, layer_cache))
            x = x + self._mlp(layer, self._normed(x, layer.mlp_norm))
        return self._normed(x, self._norm)

    def padded(self, rows: int) -> int:
        """The number of rows to feed for `rows` wanted ones: the most that any linear layer needs."""
        return max(padded(rows, sizes) for sizes in self._sizes)

    def _heads(self, layer: Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Queries, keys and values [rows, heads + 2 * kv heads, head_dim]; queries and keys are rotated."""
        config = self._config
        heads = layer.qkv(x).view(x.shape[0], -1, config.head_dim)
        rotated = heads[:, : config.num_heads + config.num_kv_heads]
        if layer.qk_norm is not None:
            rotated.copy_(_rms_norm(rotated, layer.qk_norm, config.norm_eps))
        _rotate_(rotated, cos, sin)
        return heads

    def _attention(self, heads: torch.Tensor, plan: Plan, cache: torch.Tensor) -> torch.Tensor:
        config = self._config
        keys_values = heads[: plan.slots.shape[0], config.num_heads :].transpose(0, 1)
        cache.view(2 * config.num_kv_heads, -1, config.head_dim).index_copy_(1, plan.slots, keys_values)
        return plan.layout.attend(heads[:, : config.num_heads], cache)

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        gate, up = layer.gate_up(x).chunk(2, dim=-1)
        return layer.down(_silu(gate).mul_(up))

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return _rms_norm(x, weight, self._config.norm_eps)


def _rotate_(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate `heads` [rows, num_heads, head_dim] in place by `cos` and `sin` [rows, 1, head_dim].

    Product and sum stay two operations: a fused one may round differently in the tail of a vector than in its body.
    """
    partner = torch.roll(heads, heads.shape[-1] // 2, -1)
    torch.add(heads * cos, partner.mul_(sin), out=heads)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension, in fp32; torch has a fused one on GPUs only."""
    if x.device.type != "cpu":
        return F.rms_norm(x, (x.shape[-1],), None, eps) * weight
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    scale = norm.mul_(norm).mul_(1.0 / x.shape[-1]).add_(eps).rsqrt_()
    normed: torch.Tensor = (x * scale * weight).to(x.dtype)
    return normed


def _silu(x: torch.Tensor) -> torch.Tensor:
    if x.device.type != "cpu" or x.numel() <= _UNCUT_NUMEL:
        return F.silu(x)
    return torch.cat([F.silu(part) for part in torch.split(x, max(1, _UNCUT_NUMEL // x.shape[-1]))])
