"""The layers of a plan: embedding, decoder layers, final norm. Rows in, hidden states out, keys and values cached.

Linear layers run over the concatenated rows of a pass; only attention knows which rows belong together. In bf16 the
same steps are rounded as in transformers, except that a norm multiplies by its weight before it rounds. Norms and
softmax are computed in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812

from core.model.config import Activation, LayerPlan, ModelConfig
from core.model.rotary import rotary_tables
from core.model.tensor_views import as_tensor
from core.model.torch.linear import Linear, padded
from core.model.torch.plan import Plan

# torch splits longer elementwise work between threads at any place, and `exp` rounds differently at the split.
_UNCUT_NUMEL = 32767


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer: its plan, and its weights as `LayerTensors` has them."""

    plan: LayerPlan
    norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    out: Linear
    attention_out_norm: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear
    mlp_out_norm: torch.Tensor | None


class Transformer:
    """A decoder without its head. Hidden states are [rows, hidden_size] in the model's dtype."""

    def __init__(self, config: ModelConfig, embedding: torch.Tensor, layers: list[Layer], norm: torch.Tensor) -> None:
        self.device, self.dtype = embedding.device, embedding.dtype
        self._config = config
        self._embedding = embedding
        self._layers = layers
        linears = [linear for layer in layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        self._sizes = {linear.sizes for linear in linears}
        self._norm = norm
        self._scale = 1 / math.sqrt(config.query_scalar)
        self._activation = _ACTIVATIONS[config.activation]
        self._rotary = {
            rope: (as_tensor(tables.cos).to(embedding), as_tensor(tables.sin).to(embedding))
            for rope, tables in rotary_tables(config).items()
        }

    def __call__(self, plan: Plan, cache: torch.Tensor) -> torch.Tensor:
        """Run one pass over the rows of `plan`; `cache` is [layers, 2 * kv heads, pages, ...]."""
        x = F.embedding(plan.tokens, self._embedding)
        rotary = {
            rope: (cos.index_select(0, plan.positions), sin.index_select(0, plan.positions))
            for rope, (cos, sin) in self._rotary.items()
        }
        for layer, layer_cache in zip(self._layers, cache.unbind(0), strict=True):
            heads = self._heads(layer, self._normed(x, layer.norm), *rotary[layer.plan.rope])
            x = x + self._behind(layer.out(self._attention(layer, heads, plan, layer_cache)), layer.attention_out_norm)
            x = x + self._behind(self._mlp(layer, self._normed(x, layer.mlp_norm)), layer.mlp_out_norm)
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

    def _attention(self, layer: Layer, heads: torch.Tensor, plan: Plan, cache: torch.Tensor) -> torch.Tensor:
        config = self._config
        keys_values = heads[: plan.slots.shape[0], config.num_heads :].transpose(0, 1)
        cache.view(2 * config.num_kv_heads, -1, config.head_dim).index_copy_(1, plan.slots, keys_values)
        return plan.layout.attend(heads[:, : config.num_heads], cache, layer.plan.window, self._scale)

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        gate, up = layer.gate_up(x).chunk(2, dim=-1)
        return layer.down(by_rows(self._activation, gate).mul_(up))

    def _behind(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """What attention or MLP adds, normed where the layer has a norm for it."""
        return x if weight is None else self._normed(x, weight)

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
        return (F.rms_norm(x, (x.shape[-1],), None, eps) * weight).to(x.dtype)
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    scale = norm.mul_(norm).mul_(1.0 / x.shape[-1]).add_(eps).rsqrt_()
    normed: torch.Tensor = (x * scale * weight).to(x.dtype)
    return normed


def by_rows(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """An elementwise function of rows, each by itself where its bits could depend on the others.

    On a CPU contiguous rows would be one vector, at whose end torch computes otherwise than before.
    """
    if x.device.type != "cpu" or (x.numel() <= _UNCUT_NUMEL and not x.is_contiguous()):
        return function(x)
    return torch.cat([function(row) for row in torch.split(x, 1)])


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


_ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {"silu": F.silu, "gelu_tanh": _gelu_tanh}
