"""A model's decoder on a CPU, as compiled loops: a whole pass, or a whole proposal, is one call.

Enters: tokens, where they stand, and the paged cache. Leaves: logits, whose bits depend on a row's own prefix only, or
what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numba
import numpy as np
import torch

from core.guess import RUNNERS_UP, Ending, Guess
from core.model import kernels
from core.model.compiling import Array, Integers
from core.model.config import ModelConfig
from core.model.plan import Span
from core.model.products import Weight, pack
from core.model.rotary import Rotary
from core.model.tensors import LayerTensors, Matrix, Tensors

_NONE = np.empty((0, 0), np.float32)
_NO_NOISE = np.empty((0, 0, 0), np.float32)


class CompiledDecoder:
    """Computes in fp32, its weights, keys and values in their own dtype, on as many threads as torch has when made.

    `cache`: [layers, 2 * kv heads, pages, PAGE_SIZE * head_dim].
    """

    draws, loops = True, False

    def __init__(self, config: ModelConfig, tensors: Tensors, cache: torch.Tensor) -> None:
        rotary = Rotary(config, torch.float32, cache.device)
        self._cache = _held(cache)
        self._vocab_size = config.vocab_size
        self._model: kernels.Model = (
            _array(tensors.embedding),
            rotary.cos[:, 0].numpy(),
            rotary.sin[:, 0].numpy(),
            np.float32(config.norm_eps),
            config.num_heads,
            config.intermediate_size,
            _stacked(map(_packed_layer, tensors.layers()), config.num_layers),
            _array(tensors.norm),
            *_packed(tensors.head),
        )
        threads = torch.get_num_threads()
        self._threads = min(threads, numba.get_num_threads()) if threads > 1 else None
        kernels.compile_for(str(self._model[-2].dtype), self._threads)

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], wanted: Sequence[int]) -> torch.Tensor:
        logits = np.empty((len(wanted), self._vocab_size), np.float32)
        rows = (np.array(tokens), *_places(spans), np.array(wanted, np.int64))
        self._gather_team()
        kernels.forward(*rows, self._cache, self._model, self._threads, logits)
        return torch.from_numpy(logits)

    def draw(
        self,
        tokens: Sequence[int],
        spans: Sequence[Span],
        steps: int,
        num_ids: int,
        noise: torch.Tensor | None,
        ending: Ending,
    ) -> list[list[Guess]]:
        ends = np.array([span.first_row + span.length - 1 for span in spans])
        drawn = np.empty((steps, len(spans), min(1 + len(RUNNERS_UP), num_ids)), np.int64)
        leads = np.empty(drawn.shape[:2])
        added = _NO_NOISE if noise is None else noise.contiguous().numpy()
        rows = (np.array(tokens), *_places(spans), ends)
        own = ending._replace(survivals=ending.survivals.copy())
        self._gather_team()
        taken = kernels.draw(*rows, self._cache, self._model, self._threads, num_ids, added, *own, drawn, leads)
        lines = zip(drawn[:taken].swapaxes(0, 1).tolist(), leads[:taken].T.tolist(), strict=True)
        return [list(map(_guess, found, lead)) for found, lead in lines]

    def _gather_team(self) -> None:
        if self._threads is not None:
            numba.set_num_threads(self._threads)  # of the thread that calls


def _held(cache: torch.Tensor) -> kernels.Cache:
    """The same memory, what is in bf16 as words of two."""
    return cache.numpy() if cache.dtype == torch.float32 else cache.view(torch.int32).numpy().view(np.uint32)


def _guess(found: list[int], lead: float) -> Guess:
    best, *others = (token for token in found if token >= 0)  # there may be fewer
    return Guess(best, lead, tuple(others))


def _places(spans: Sequence[Span]) -> tuple[Integers, Integers]:
    """Where the rows stand in their sessions [rows], and the pages of these [rows, most]."""
    positions = np.concatenate([np.arange(span.start, span.start + span.length) for span in spans])
    tables = np.zeros((len(spans), max(len(span.pages) for span in spans)), np.int64)
    for table, span in zip(tables, spans, strict=True):
        table[: len(span.pages)] = span.pages
    return positions, np.repeat(tables, [span.length for span in spans], axis=0)


def _packed_layer(layer: LayerTensors) -> kernels.Layers:
    """A layer's, in the kernels' order."""
    qk_norm = _NONE if layer.qk_norm is None else _array(layer.qk_norm)
    attention = (_array(layer.norm), *_packed(layer.qkv), qk_norm, *_packed(layer.out))
    return (*attention, _array(layer.mlp_norm), *_packed(layer.gate_up), *_packed(layer.down))


def _stacked(layers: Iterable[kernels.Layers], number: int) -> kernels.Layers:
    """All layers' arrays of each kind as one, of which no second copy is ever held but a layer's."""
    stacks: list[np.ndarray] = []
    for index, layer in enumerate(layers):
        stacks = stacks or [np.empty((number, *array.shape), array.dtype) for array in layer]
        for stack, array in zip(stacks, layer, strict=True):
            stack[index] = array
    return cast("kernels.Layers", tuple(stacks))


def _packed(matrix: Matrix) -> tuple[Weight, Array]:
    return pack(matrix.weight), np.empty(0, np.float32) if matrix.bias is None else _array(matrix.bias)


def _array(tensor: torch.Tensor) -> Array:
    return tensor.float().contiguous().numpy()
