"""`CausalLM`: a LLaMA-family model with a paged cache per session, the one implementation of `Model`.

A token's logits are a function of its own prefix, bit for bit, on one machine. Here are its sessions and their pages;
what a pass computes is a decoder's: compiled loops on CPUs (compiled_decoder.py), torch elsewhere (torch_decoder.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from core.guess import Ending, Guess
from core.model.base import Model, Rows, one_by_one
from core.model.config import ModelConfig
from core.model.graphs import cuda_recorder
from core.model.loader import Weights, resolve
from core.model.pages import PAGE_SIZE, PageCopy, PagePool
from core.model.plan import Span
from core.model.tensors import Tensors
from core.model.torch_decoder import TorchDecoder


class Decoder(Protocol):
    """Computes passes over pages that are already theirs."""

    @property
    def draws(self) -> bool:
        """Whether `draw` is to be called."""

    @property
    def loops(self) -> bool:
        """Whether `draw` draws all steps whatever the tokens are."""

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], wanted: Sequence[int]) -> torch.Tensor:
        """A pass over the rows of `spans`; the fp32 logits [wanted, vocab_size] of some of them."""

    def draw(
        self,
        tokens: Sequence[int],
        spans: Sequence[Span],
        steps: int,
        num_ids: int,
        noise: torch.Tensor | None,
        ending: Ending,
    ) -> list[list[Guess]]:
        """What `Model.draw` draws for every span; there is room for all steps."""


class CausalLM(Model):
    """A model whose sessions share a pool of pages of 64 tokens.

    `cache`: [layers, 2 * kv heads, pages and a spare one, PAGE_SIZE * head_dim].
    """

    def __init__(self, config: ModelConfig, cache: torch.Tensor, decoder: Decoder) -> None:
        self.vocab_size = config.vocab_size
        self.context = config.context
        self.device = cache.device
        self.loops = decoder.loops
        self._cache = cache
        self._decoder = decoder
        self._pool = PagePool(cache.shape[2] - 1)

    @property
    def num_used_pages(self) -> int:
        return self._pool.num_pages - self._pool.num_free

    @property
    def num_free_pages(self) -> int:
        return self._pool.num_free

    @property
    def num_remembered_pages(self) -> int:
        return self._pool.num_remembered

    def open(self, session: int) -> None:
        self._pool.open(session)

    def fork(self, source: int, session: int) -> None:
        self._pool.fork(source, session)

    def num_cached(self, session: int) -> int:
        return self._pool.length(session)

    def remember(self, session: int, tokens: Sequence[int]) -> None:
        self._pool.remember(session, tokens)

    def recall(self, session: int, tokens: Sequence[int]) -> int:
        return self._pool.recall(session, tokens)

    def rollback(self, session: int, length: int) -> None:
        self._pool.rollback(session, length)

    def close(self, session: int) -> None:
        self._pool.close(session)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        self._check(batch, 0)
        spans = self._make_room(batch, 0)
        return self._decoder(_tokens(batch), spans, _wanted(batch, spans))

    @torch.inference_mode()
    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None, ending: Ending
    ) -> list[list[Guess]]:
        self._check(batch, steps - 1)
        if not self._decoder.draws:
            return one_by_one(self, batch, steps, num_ids, noise, ending)
        spans = self._make_room(batch, steps - 1)
        drawn = self._decoder.draw(_tokens(batch), spans, steps, num_ids, noise, ending)
        if (taken := len(drawn[0])) < steps:
            for rows, span in zip(batch, spans, strict=True):
                self._pool.rollback(rows.session, span.start + span.length + taken - 1)
        return drawn

    def _make_room(self, batch: Sequence[Rows], drawn: int) -> list[Span]:
        """Give every session its pages, for so many more tokens too, and say where its rows of the first pass go."""
        starts = [self._pool.length(rows.session) for rows in batch]
        copies = self._pool.extend([(rows.session, len(rows.tokens) + drawn) for rows in batch])
        if copies:
            self._copy(copies)
        spans, first_row = [], 0
        for rows, start in zip(batch, starts, strict=True):
            spans.append(Span(first_row, start, len(rows.tokens), self._pool.pages(rows.session)))
            first_row += len(rows.tokens)
        return spans

    def _copy(self, pages: Sequence[PageCopy]) -> None:
        for source, target in pages:
            self._cache[:, :, target] = self._cache[:, :, source]

    def _check(self, batch: Sequence[Rows], drawn: int) -> None:
        if len({rows.session for rows in batch}) != len(batch):
            raise ValueError("a session may appear once in a pass")
        for rows in batch:
            if not 0 <= rows.num_logits <= len(rows.tokens) or not rows.tokens:
                raise ValueError(f"session {rows.session}: {rows.num_logits} logits of {len(rows.tokens)} tokens")
            if not 0 <= min(rows.tokens) <= max(rows.tokens) < self.vocab_size:  # compiled loops would read anything
                raise ValueError(f"session {rows.session}: ids from {min(rows.tokens)} to {max(rows.tokens)}")
            if self._pool.length(rows.session) + len(rows.tokens) + drawn > self.context:
                raise ValueError(f"session {rows.session} would exceed the context of {self.context} tokens")


def _tokens(batch: Sequence[Rows]) -> list[int]:
    return [token for rows in batch for token in rows.tokens]


def _wanted(batch: Sequence[Rows], spans: Sequence[Span]) -> list[int]:
    """Rows of the pass whose logits are wanted."""
    wanted: list[int] = []
    for rows, span in zip(batch, spans, strict=True):
        end = span.first_row + span.length
        wanted += range(end - rows.num_logits, end)
    return wanted


def load_model(
    path: str | Path,
    *,
    dtype: torch.dtype,
    num_pages: int,
    device: str | torch.device = "cpu",
    adapter: str | Path | None = None,
    compiled: bool | None = None,
    exact: bool = True,
    num_layers: int | None = None,
) -> CausalLM:
    """Load a model directory or hub id, with a peft LoRA adapter merged where one is given.

    `compiled`: whether loops compute it, in fp32, or torch, in `dtype`; by default loops on CPUs. `exact`: whether a
    token's bits must be its prefix's alone, as they always are on a CPU; on a GPU that takes kernels of fixed shapes.
    `num_layers`: of its layers only the first ones, for timing.

    Raises `UnsupportedArchitecture` and `ConfigError`, each saying what would do instead.
    """
    directory, device = resolve(path), torch.device(device)
    config = ModelConfig.load(directory)
    if num_layers is not None:
        config = replace(config, num_layers=num_layers)
    weights = Weights(directory, resolve(adapter) if adapter else None, dtype, device)
    if compiled is None:
        compiled = device.type == "cpu"
    shape = (config.num_layers, 2 * config.num_kv_heads, num_pages + 1, PAGE_SIZE * config.head_dim)
    with torch.inference_mode():
        cache = torch.zeros(shape, dtype=dtype, device=device)
        tensors = Tensors(config, weights)
        decoder = _compiled(config, tensors, cache) if compiled else _in_torch(config, tensors, cache, exact=exact)
    weights.check_all_merged()
    return CausalLM(config, cache, decoder)


def _compiled(config: ModelConfig, tensors: Tensors, cache: torch.Tensor) -> Decoder:
    from core.model.compiled_decoder import CompiledDecoder  # which loads a compiler

    return CompiledDecoder(config, tensors, cache)


def _in_torch(config: ModelConfig, tensors: Tensors, cache: torch.Tensor, *, exact: bool) -> Decoder:
    record = cuda_recorder() if cache.device.type == "cuda" else None
    return TorchDecoder.load(config, tensors, cache, record, exact=exact)
