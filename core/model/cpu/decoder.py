"""A model's decoder on a CPU, as compiled kernels: a whole pass, or a whole proposal, is one call.

Enters: tokens, where they stand, and the paged cache. Leaves: logits, whose bits depend on a row's own prefix only, or
what is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import byref, c_double, c_int64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.model.bfloat16 import Dtype, Weight, widened
from core.model.config import ModelConfig, RopeConfig
from core.model.cpu import bindings, build
from core.model.draft_tokens import RUNNERS_UP, DraftToken, StopRule
from core.model.pages import PAGE_SIZE, PageCopy, Span
from core.model.rotary import rotary_tables
from core.model.tensors import LayerTensors, Matrix, Tensors

_STRETCH = 1 << 24  # words of weights at once; what is not used is never touched
_NO_WINDOW = 1 << 62  # tokens, more than any session has
_LINE = 16  # words of a line of the caches, where a stretch begins lest vectors lie across two


class CompiledDecoder:
    """Computes in fp32, its weights, keys and values in their own dtype.

    `cache`: [layers, 2 * kv heads, pages, PAGE_SIZE * head_dim], fp32, or bf16 as uint16; memory of pages that no
    session has used yet is not taken. `threads`: None for as many as OpenMP has by default; there are never more than
    cores.
    """

    draws, loops = True, False
    device = "cpu"

    def __init__(
        self, config: ModelConfig, tensors: Tensors, num_pages: int, dtype: Dtype, threads: int | None = None
    ) -> None:
        self.num_pages, self.dtype, self.head_ids = num_pages, dtype, tensors.head_ids
        shape = config.num_layers, 2 * config.num_kv_heads, num_pages, PAGE_SIZE * config.head_dim
        self.cache: Weight = np.zeros(shape, np.uint16 if dtype == "bfloat16" else np.float32)
        self.kernels = bindings.load(build.level())
        self._held: list[NDArray[Any]] = []
        self._room = np.empty(0, np.int32)
        head = tensors.head
        self._num_logits = len(head.weight)
        embedding, tables = self._floats(tensors.embedding), self._tables(config)
        layers = [
            self._layer(layer, tables[plan.rope], plan.window)
            for plan, layer in zip(config.layers, tensors.layers(), strict=True)
        ]
        self.model = bindings.CModel(
            embedding=embedding,
            layers=(bindings.CLayer * config.num_layers)(*layers),
            norm=self._floats(tensors.norm),
            head=self._matrix(head),
            head_ids=None if tensors.head_ids is None else self._address(tensors.head_ids),
            cache=self._address(self.cache),
            eps=config.norm_eps,
            query_scalar=config.query_scalar,
            num_layers=config.num_layers,
            hidden=config.hidden_size,
            num_gates=config.intermediate_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            num_pages=num_pages,
            in_bf16=dtype == "bfloat16",
            gelu_tanh=config.activation == "gelu_tanh",
            threads=min(threads or self.kernels.omp_get_max_threads(), len(os.sched_getaffinity(0))),
        )

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], logit_rows: Sequence[int]) -> NDArray[np.float32]:
        logits = np.empty((len(logit_rows), self._num_logits), np.float32)
        self.kernels.forward(byref(self.model), byref(pass_of(tokens, spans, logit_rows, logits)))
        return logits

    def copy_pages(self, copies: Sequence[PageCopy]) -> None:
        for source, target in copies:
            self.cache[:, :, target] = self.cache[:, :, source]

    def draw(
        self,
        tokens: Sequence[int],
        spans: Sequence[Span],
        steps: int,
        num_ids: int,
        noise: NDArray[np.float32] | None,
        ending: StopRule,
    ) -> list[list[DraftToken]]:
        _check(len(spans), steps, num_ids, self._num_logits, noise, ending)
        lines, num_best = len(spans), min(1 + len(RUNNERS_UP), num_ids)
        best, margins = (c_int64 * (steps * lines * num_best))(), (c_double * (steps * lines))()
        added, survivals = None if noise is None else np.ascontiguousarray(noise, np.float32), ending.survivals.copy()
        drawing = bindings.CDrawing(
            steps=steps,
            num_ids=num_ids,
            most=num_best,
            noise=None if added is None else _begin(added),
            edges=_begin(ending.edges),
            chances=_begin(ending.chances),
            worths=_begin(ending.worths),
            survivals=_begin(survivals),
            num_edges=len(ending.edges),
            enough=ending.enough,
            drawn=best,
            margins=margins,
        )
        logits = np.empty((lines, self._num_logits), np.float32)
        ends = [span.first_row + span.length - 1 for span in spans]
        num_steps = self.kernels.draw(byref(self.model), byref(pass_of(tokens, spans, ends, logits)), byref(drawing))
        guesses = [
            _draft_token(best[at * num_best : (at + 1) * num_best], margin)
            for at, margin in enumerate(margins[: num_steps * lines])
        ]
        return [guesses[line::lines] for line in range(lines)]

    def _tables(self, config: ModelConfig) -> dict[RopeConfig, tuple[int, int]]:
        """The cosines and sines of every rotary embedding of the model."""
        return {
            rope: (self._floats(rotary.cos), self._floats(rotary.sin)) for rope, rotary in rotary_tables(config).items()
        }

    def _layer(self, layer: LayerTensors, rotary: tuple[int, int], window: int | None) -> bindings.CLayer:
        cos, sin = rotary
        return bindings.CLayer(
            norm=self._floats(layer.norm),
            qkv=self._matrix(layer.qkv),
            qk_norm=self._optional(layer.qk_norm),
            out=self._matrix(layer.out),
            attention_out_norm=self._optional(layer.attention_out_norm),
            mlp_norm=self._floats(layer.mlp_norm),
            gate_up=self._matrix(layer.gate_up),
            down=self._matrix(layer.down),
            mlp_out_norm=self._optional(layer.mlp_out_norm),
            cos=cos,
            sin=sin,
            window=_NO_WINDOW if window is None else window,
        )

    def _matrix(self, matrix: Matrix) -> bindings.CMatrix:
        outs, ins = matrix.weight.shape
        packed = self._laid_out(bindings.pack(self.kernels, matrix.weight))
        bias = None if matrix.bias is None else self._floats(matrix.bias)
        return bindings.CMatrix(weight=self._address(packed), bias=bias, outs=outs, ins=ins, steps=packed.shape[1])

    def _laid_out(self, packed: NDArray[np.int32]) -> NDArray[np.int32]:
        """In one stretch with other weights, for which NumPy asks for huge pages."""
        size = packed.size
        if size > len(self._room):
            room = np.empty(max(size, _STRETCH) + _LINE, np.int32)
            self._room = room[-_begin(room) // room.itemsize % _LINE :]
        place, self._room = self._room[:size].reshape(packed.shape), self._room[size:]
        place[:] = packed
        return place

    def _optional(self, weight: Weight | None) -> int | None:
        return None if weight is None else self._floats(weight)

    def _floats(self, weight: Weight) -> int:
        return self._address(np.require(widened(weight), requirements=("C", "ALIGNED")))

    def _address(self, array: NDArray[Any]) -> int:
        """Where the array lies, which is held for as long as the decoder is."""
        self._held.append(array)
        return _begin(array)


def pass_of(
    tokens: Sequence[int], spans: Sequence[Span], logit_rows: Sequence[int], logits: NDArray[np.float32]
) -> bindings.CPass:
    """A pass over the rows of `spans` that leaves `logits` [logit rows, head's outs]."""
    pages: list[int] = []
    places = []
    for span in spans:
        places.append(bindings.CSpan(span.start, span.length, len(pages)))
        pages += span.pages
    laid = bindings.CPass(
        tokens=(c_int64 * len(tokens))(*tokens),
        spans=(bindings.CSpan * len(spans))(*places),
        pages=(c_int64 * len(pages))(*pages),
        wanted=(c_int64 * len(logit_rows))(*logit_rows),
        logits=_begin(logits),
        num_rows=len(tokens),
        num_spans=len(spans),
        num_wanted=len(logit_rows),
    )
    laid.held = logits  # of which the structure only has the address
    return laid


def _check(
    lines: int, steps: int, num_ids: int, num_logits: int, noise: NDArray[np.float32] | None, ending: StopRule
) -> None:
    """The kernels would read anything."""
    if not 0 < num_ids <= num_logits or (noise is not None and noise.shape != (steps, lines, num_ids)):
        raise ValueError(f"{num_ids} ids of {num_logits}, noise {None if noise is None else [*noise.shape]}")
    if len(ending.chances) <= len(ending.edges) or not len(ending.survivals) == len(ending.worths) == lines:
        raise ValueError(f"an ending of other than {lines} lines, or of too few chances")


def _begin(numbers: NDArray[Any]) -> int:
    return numbers.ctypes.data


def _draft_token(tokens: list[int], margin: float) -> DraftToken:
    best, *others = (token for token in tokens if token >= 0)  # there may be fewer
    return DraftToken(best, margin, tuple(others))
