"""The decoder for passes of a few rows of a small model, on CPUs and in fp32: for drafts.

Enters: tokens and where they stand, the layers and the paged cache that torch fills with prompts. Leaves: logits, whose
last bits may depend on what else is in the pass. Of a round's time the shipped draft's forwards are 0.42 ms for 3.4
tokens, where through torch they were 1.6 and more for 3 (tests.bench.rounds).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from core.model import kernels
from core.model.attention import Span
from core.model.config import ModelConfig
from core.model.kernels import Array, Integers
from core.model.linear import Linear
from core.model.rotary import Rotary
from core.model.transformer import Layer

_NONE = np.empty((0, 0), np.float32)


class LightDecoder:
    """The same model as a `Transformer` and its head, over the same cache [layers, 2 * kv heads, pages, ...]."""

    most_rows = 32  # of a pass: with more, torch computes longer than it takes to call

    def __init__(
        self,
        config: ModelConfig,
        embedding: torch.Tensor,
        layers: Sequence[Layer],
        norm: torch.Tensor,
        head: Linear,
        rotary: Rotary,
        cache: torch.Tensor,
    ) -> None:
        self._eps = config.norm_eps
        self._embedding: Array = embedding.numpy()
        self._turns: tuple[Array, Array] = (rotary.cos[:, 0].numpy(), rotary.sin[:, 0].numpy())
        self._attentions = [_attention(layer) for layer in layers]
        self._mlps = [(layer.mlp_norm.numpy(), *_kept(layer.gate_up), *_kept(layer.down)) for layer in layers]
        self._head = (norm.numpy(), *_kept(head))
        self._cache: Array = cache.view(*cache.shape[:-1], -1, config.head_dim).numpy()

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], wanted: Sequence[int]) -> Array:
        """One pass over the rows of `spans`; the logits [wanted, vocabulary] of some of them."""
        return self._pass(np.array(tokens), *_places(spans), wanted)

    def draw(
        self, tokens: Sequence[int], spans: Sequence[Span], steps: int, num_ids: int, noise: Array | None
    ) -> Iterator[Array]:
        """Scores [spans, ids] of so many passes: the first feeds `tokens`, the others what was drawn, in place."""
        fed = np.array(tokens)
        positions, pages = _places(spans)
        ends = [span.first_row + span.length - 1 for span in spans]
        for step in range(steps):
            scores = self._pass(fed, positions, pages, ends)[:, :num_ids]
            if noise is not None:
                scores += noise[step]
            yield scores
            fed, positions, pages, ends = scores.argmax(-1), positions[ends] + 1, pages[ends], list(range(len(spans)))

    def _pass(self, tokens: Integers, positions: Integers, pages: Integers, wanted: Sequence[int]) -> Array:
        x = self._embedding[tokens]
        for attention, mlp, cache in zip(self._attentions, self._mlps, self._cache, strict=True):
            kernels.attention(x, positions, pages, cache, *self._turns, self._eps, *attention)
            kernels.mlp(x, self._eps, *mlp)
        rows = x if len(wanted) == len(x) else x[wanted]
        logits = np.empty((len(wanted), self._head[1].shape[0]), np.float32)
        kernels.head(rows, self._eps, *self._head, logits)
        return logits


def _places(spans: Sequence[Span]) -> tuple[Integers, Integers]:
    """Where the rows stand in their sessions [rows], and the pages of these [rows, most]."""
    at = [(position, span) for span in spans for position in range(span.start, span.start + span.length)]
    pages = np.zeros((len(at), max(len(span.pages) for span in spans)), np.int64)
    for row, (_, span) in enumerate(at):
        pages[row, : len(span.pages)] = span.pages
    return np.array([position for position, _ in at]), pages


def _attention(layer: Layer) -> tuple[Array, ...]:
    """The weights in the kernel's order."""
    qk_norm = _NONE if layer.qk_norm is None else layer.qk_norm.contiguous().numpy()
    return (layer.input_norm.numpy(), *_kept(layer.qkv), qk_norm, *_kept(layer.out))


def _kept(linear: Linear) -> tuple[Array, Array]:
    """Weight and bias of a layer that has kept them."""
    assert linear.kept is not None
    weight, bias = linear.kept
    return weight.contiguous().numpy(), _NONE.reshape(0) if bias is None else bias.numpy()
