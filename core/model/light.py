"""The decoder for passes of a few rows of a small model, on CPUs and in fp32: for drafts.

Enters: tokens and where they stand, the layers and the paged cache that torch fills with prompts. Leaves: logits, whose
last bits may depend on what else is in the pass, or what is drawn. Of a round's time the shipped draft's forwards are
0.33 ms for 3.3 tokens, where through torch they were 1.6 and more for 3 (tests.bench.rounds).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from core.guess import RUNNERS_UP, Ending, Guess
from core.model import kernels
from core.model.attention import Span
from core.model.config import ModelConfig
from core.model.kernels import Array, Integers
from core.model.linear import Linear
from core.model.rotary import Rotary
from core.model.transformer import Layer

_NONE = np.empty((0, 0), np.float32)
_NO_NOISE = np.empty((0, 0, 0), np.float32)


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
        self._cache: Array = cache.view(*cache.shape[:-1], -1, config.head_dim).numpy()
        self._model: kernels.Model = (
            embedding.numpy(),
            rotary.cos[:, 0].numpy(),
            rotary.sin[:, 0].numpy(),
            np.float32(config.norm_eps),
            _stacked([_arrays(layer) for layer in layers]),
            norm.numpy(),
            *_taken(head),
        )

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], wanted: Sequence[int]) -> Array:
        """One pass over the rows of `spans`; the logits [wanted, vocabulary] of some of them."""
        logits = np.empty((len(wanted), len(self._model[6])), np.float32)
        kernels.forward(np.array(tokens), *_places(spans), np.array(wanted), self._cache, self._model, logits)
        return logits

    def draw(
        self,
        tokens: Sequence[int],
        spans: Sequence[Span],
        steps: int,
        num_ids: int,
        noise: torch.Tensor | None,
        ending: Ending,
    ) -> list[list[Guess]]:
        """What `Model.draw` draws for every span."""
        ends = np.array([span.first_row + span.length - 1 for span in spans])
        drawn = np.empty((steps, len(spans), min(1 + len(RUNNERS_UP), num_ids)), np.int64)
        leads = np.empty(drawn.shape[:2])
        added = _NO_NOISE if noise is None else noise.contiguous().numpy()
        rows = (np.array(tokens), *_places(spans), ends)
        own = ending._replace(survivals=ending.survivals.copy())
        taken = kernels.draw(*rows, self._cache, self._model, num_ids, added, *own, drawn, leads)
        lines = zip(drawn[:taken].swapaxes(0, 1).tolist(), leads[:taken].T.tolist(), strict=True)
        return [list(map(_guess, found, lead)) for found, lead in lines]


def _guess(found: list[int], lead: float) -> Guess:
    if found[-1] < 0:  # there are fewer, or none where the model says nothing but NaN
        found = [token for token in found if token >= 0] or [0]
    best, *others = found
    return Guess(best, lead, tuple(others))


def _places(spans: Sequence[Span]) -> tuple[Integers, Integers]:
    """Where the rows stand in their sessions [rows], and the pages of these [rows, most]."""
    at = [(position, span) for span in spans for position in range(span.start, span.start + span.length)]
    pages = np.zeros((len(at), max(len(span.pages) for span in spans)), np.int64)
    for row, (_, span) in enumerate(at):
        pages[row, : len(span.pages)] = span.pages
    return np.array([position for position, _ in at]), pages


def _arrays(layer: Layer) -> kernels.Layers:
    """A layer's, in the kernels' order."""
    qk_norm = _NONE if layer.qk_norm is None else layer.qk_norm.contiguous().numpy()
    attention = (layer.input_norm.numpy(), *_taken(layer.qkv), qk_norm, *_taken(layer.out))
    return (*attention, layer.mlp_norm.numpy(), *_taken(layer.gate_up), *_taken(layer.down))


def _stacked(layers: Sequence[kernels.Layers]) -> kernels.Layers:
    return cast(kernels.Layers, tuple(np.stack(alike) for alike in zip(*layers, strict=True)))


def _taken(linear: Linear) -> tuple[Array, Array]:
    """Weight and bias of a layer that has kept them until now."""
    assert linear.kept is not None
    (weight, bias), linear.kept = linear.kept, None
    return weight.contiguous().numpy(), np.empty(0, np.float32) if bias is None else bias.numpy()
