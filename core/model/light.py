"""The decoder in NumPy, for a few rows of a model so small that torch's calls take ten times what they compute.

Enters: tokens and where they stand, the layers and the paged cache that torch fills with prompts. Leaves: logits. It is
for drafts, on CPUs, in fp32: what else shares a pass may show in a row's last bits. In us for a token of the shipped
draft after 300 others: 75 where torch takes 580, and 400 where it takes 1,500 after a target's pass has emptied the
caches, as it has when a verdict comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from core.model.attention import Span, slots
from core.model.config import ModelConfig
from core.model.linear import Linear
from core.model.pages import PAGE_SIZE, pages_for
from core.model.rotary import Rotary
from core.model.transformer import Layer

MOST_ROWS = 16  # of a pass; with more, torch computes longer than it takes to call

_ONE = np.float32(1.0)

Array = NDArray[np.float32]


class LightDecoder:
    """The same model as a `Transformer` and its head, over the same cache [layers, 2 * kv heads, pages, ...]."""

    def __init__(
        self,
        config: ModelConfig,
        embedding: torch.Tensor,
        layers: Sequence[Layer],
        norm: torch.Tensor,
        head: Linear,
        cache: torch.Tensor,
    ) -> None:
        rotary = Rotary(config, torch.float32, torch.device("cpu"))
        self._embedding, self._norm = embedding.numpy(), _Norm(norm, config)
        self._layers = [_LightLayer(config, layer) for layer in layers]
        self._head = _Matrix(head)
        self._cos, self._sin = rotary.cos.numpy(), rotary.sin.numpy()
        shape = (len(layers), 2 * config.num_kv_heads, -1, config.head_dim)
        self._cache = cache.view(shape).numpy()

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], wanted: Sequence[int]) -> Array:
        """One pass over the rows of `spans`; the logits [wanted, vocabulary] of some of them."""
        rows = _Rows.of(spans)
        cos, sin = self._cos[rows.positions], self._sin[rows.positions]
        x = self._embedding[list(tokens)]
        for layer, cache in zip(self._layers, self._cache, strict=True):
            x += layer.attention(x, cos, sin, cache, rows)
            x += layer.mlp(x)
        return self._head(self._norm(x if len(wanted) == len(x) else x[wanted]))


class _Rows(NamedTuple):
    """For each row of a pass: where it stands, the slot that its key goes to, and where the keys lie that it sees."""

    positions: list[int]
    slots: list[int]
    seen: list[slice | list[int]]

    @classmethod
    def of(cls, spans: Sequence[Span]) -> _Rows:
        positions = [position for span in spans for position in range(span.start, span.start + span.length)]
        seen = [_keys(span.pages, 1 + end) for span in spans for end in range(span.start, span.start + span.length)]
        return cls(positions, [slot for span in spans for slot in slots(span)], seen)


class _LightLayer:
    def __init__(self, config: ModelConfig, layer: Layer) -> None:
        self._config = config
        self._input_norm, self._mlp_norm = _Norm(layer.input_norm, config), _Norm(layer.mlp_norm, config)
        self._qk_norm = None if layer.qk_norm is None else _Norm(layer.qk_norm, config)
        self._qkv, self._out = _Matrix(layer.qkv), _Matrix(layer.out)
        self._gate_up, self._down = _Matrix(layer.gate_up), _Matrix(layer.down)
        self._scale = np.float32(config.head_dim**-0.5)

    def attention(self, x: Array, cos: Array, sin: Array, cache: Array, rows: _Rows) -> Array:
        """What attention adds to `x`; `cache` [2 * kv heads, slots, head_dim] gets the rows' keys and values."""
        num_heads, num_keys, half = self._config.num_heads, self._config.num_kv_heads, self._config.head_dim // 2
        heads = self._qkv(self._input_norm(x)).reshape(len(x), -1, 2 * half)
        turning = heads[:, : num_heads + num_keys]
        if self._qk_norm is not None:
            turning = self._qk_norm(turning)
        turned = turning * cos + np.concatenate((turning[..., half:], turning[..., :half]), -1) * sin
        cache[:num_keys, rows.slots] = turned[:, num_heads:].swapaxes(0, 1)
        cache[num_keys:, rows.slots] = heads[:, num_heads + num_keys :].swapaxes(0, 1)
        queries = (turned[:, :num_heads] * self._scale).reshape(len(x), num_keys, -1, 2 * half)
        attended = np.empty((len(x), num_heads * 2 * half), np.float32)
        for row, (query, seen) in enumerate(zip(queries, rows.seen, strict=True)):
            scores = query @ cache[:num_keys, seen].swapaxes(1, 2)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = weights @ cache[num_keys:, seen] / weights.sum(-1, keepdims=True)
            attended[row] = mixed.reshape(-1)
        return self._out(attended)

    def mlp(self, x: Array) -> Array:
        both = self._gate_up(self._mlp_norm(x))
        gate, up = both[:, : both.shape[1] // 2], both[:, both.shape[1] // 2 :]
        activated: Array = np.divide(gate, _ONE + np.exp(-gate))
        return self._down(activated * up)


class _Matrix:
    """`x @ weight.T + bias`, of a linear layer that has kept them."""

    def __init__(self, linear: Linear) -> None:
        assert linear.kept is not None
        weight, bias = linear.kept
        self._weight: Array = weight.numpy().T
        self._bias: Array | None = None if bias is None else bias.numpy()

    def __call__(self, x: Array) -> Array:
        product = x @ self._weight
        return product if self._bias is None else product + self._bias


class _Norm:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension."""

    def __init__(self, weight: torch.Tensor, config: ModelConfig) -> None:
        size = weight.shape[-1]
        self._weight: Array = weight.numpy() * np.float32(size**0.5)
        self._eps = np.float32(size * config.norm_eps)

    def __call__(self, x: Array) -> Array:
        normed: Array = self._weight / np.sqrt(np.vecdot(x, x) + self._eps)[..., None] * x
        return normed


def _keys(pages: Sequence[int], length: int) -> slice | list[int]:
    """Where so many keys lie: where their pages follow one another, a part of the cache."""
    first = pages[0]
    if all(page == first + index for index, page in enumerate(pages[: pages_for(length)])):
        return slice(first * PAGE_SIZE, first * PAGE_SIZE + length)
    return slots(Span(0, 0, length, pages))
