"""`CausalLM`, the one implementation of `Model`: a LLaMA-family model with a paged cache per session.

It manages sessions and pages. A decoder computes the passes: compiled kernels on CPUs (cpu/decoder.py), torch elsewhere
(torch/decoder.py). On one machine a token's logits are a function of its own prefix, bit for bit.

The kernels take and give NumPy's arrays, so a process that only drafts on a CPU never imports torch. A target has
penalties, log-probabilities and training around it, which are written in torch: for it the same arrays are tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from core.arrays import Array
from core.errors import ConfigError
from core.model.base import Model, Rows, one_by_one
from core.model.bfloat16 import DTYPES, Dtype, is_dtype
from core.model.config import ModelConfig
from core.model.draft_tokens import DraftToken, StopRule
from core.model.draft_vocabulary import DraftVocabulary
from core.model.model_files import DraftFiles, OpenedModel, open_model
from core.model.pages import PageCopy, PagePool, Span

if TYPE_CHECKING:
    import torch

    from core.model.cpu.decoder import CompiledDecoder


class Decoder(Protocol[Array]):
    """Computes passes over pages that the sessions already hold."""

    @property
    def draws(self) -> bool:
        """True if the decoder implements `draw`."""

    @property
    def loops(self) -> bool:
        """True if `draw` always draws all steps."""

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], wanted: Sequence[int]) -> Array:
        """Run a pass over the rows of `spans`; returns the fp32 logits [wanted, ids] of the `wanted` rows."""

    def draw(
        self,
        tokens: Sequence[int],
        spans: Sequence[Span],
        steps: int,
        num_ids: int,
        noise: Array | None,
        ending: StopRule,
    ) -> list[list[DraftToken]]:
        """Draw as `Model.draw` does, a line per span; the pages have room for all steps."""


class CausalLM(Model[Array]):
    """A model whose sessions share a pool of pages of 64 tokens.

    `cache` is [layers, 2 * kv heads, num_pages + 1, PAGE_SIZE * head_dim]; the last page is spare.
    """

    def __init__(
        self, config: ModelConfig, cache: Array, decoder: Decoder[Array], head_ids: Array | None = None
    ) -> None:
        self.vocab_size = config.vocab_size
        self.head_ids = head_ids
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

    def forward(self, batch: Sequence[Rows]) -> Array:
        self._check(batch, 0)
        spans = self._make_room(batch, 0)
        return self._decoder(_tokens(batch), spans, _wanted(batch, spans))

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: Array | None, ending: StopRule
    ) -> list[list[DraftToken]]:
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
        """Allocate pages for every session, with room for `drawn` more tokens; returns the spans of the first pass."""
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
            if not 0 <= min(rows.tokens) <= max(rows.tokens) < self.vocab_size:  # kernels check no bounds
                raise ValueError(f"session {rows.session}: ids from {min(rows.tokens)} to {max(rows.tokens)}")
            if self._pool.length(rows.session) + len(rows.tokens) + drawn > self.context:
                raise ValueError(f"session {rows.session} would exceed the context of {self.context} tokens")


def _tokens(batch: Sequence[Rows]) -> list[int]:
    return [token for rows in batch for token in rows.tokens]


def _wanted(batch: Sequence[Rows], spans: Sequence[Span]) -> list[int]:
    """The rows of the pass whose logits are wanted."""
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
    vocabulary: DraftVocabulary | None = None,
    target: str | Path | None = None,
    compiled: bool | None = None,
    exact: bool = True,
    num_layers: int | None = None,
) -> CausalLM:
    """Load a model directory or hub id, with a peft LoRA adapter merged in if one is given.

    With a `vocabulary` the model, a draft, has logits of its ids only; the other rows of the head are dropped. A draft
    without an embedding reads that of its `target`, and one whose file has a part of the head has that vocabulary.
    `compiled` chooses compiled kernels, which compute in fp32, over torch, which computes in `dtype`. The default is
    kernels on CPUs and torch elsewhere. `exact` makes a token's bits depend on its prefix only. On a CPU they always
    do; on a GPU it takes kernels of fixed shapes. `num_layers` loads only the first layers, for timing.

    Raises `UnsupportedArchitecture` or `ConfigError`; the message names what is supported.
    """
    import torch

    from core.model.tensor_views import TensorDecoder, as_tensor

    device, name = torch.device(device), str(dtype).removeprefix("torch.")
    if not is_dtype(name):
        raise ConfigError(f"dtype: {name} is not one that models compute with; write {' or '.join(DTYPES)}")
    decoder: Decoder
    opened = open_model(path, name, adapter, vocabulary, target, num_layers)
    if compiled if compiled is not None else device.type == "cpu":
        array, loops = _compiled(opened, name, num_pages, torch.get_num_threads())
        cache, decoder = as_tensor(array), TensorDecoder(loops)
    else:
        cache = torch.zeros(opened.cache_shape(num_pages), dtype=dtype, device=device)
        decoder = _in_torch(opened, cache, exact=exact)
    opened.weights.check_all_merged()
    ids = opened.tensors.head_ids
    return CausalLM(opened.config, cache, decoder, None if ids is None else as_tensor(ids).to(device))


def load_compiled_model(
    path: str | Path,
    *,
    dtype: Dtype,
    num_pages: int,
    adapter: str | Path | None = None,
    vocabulary: DraftVocabulary | None = None,
    target: str | Path | None = None,
) -> CausalLM[NDArray[Any]]:
    """Load a model as `load_model` does, in compiled kernels and with NumPy's arrays: torch is not imported.

    It computes on as many threads as OpenMP has by default.
    """
    opened = open_model(path, dtype, adapter, vocabulary, target)
    cache, decoder = _compiled(opened, dtype, num_pages, None)
    opened.weights.check_all_merged()
    return CausalLM(opened.config, cache, decoder, opened.tensors.head_ids)


def load_draft_model(
    directory: str | Path | None,
    draft: str | Path,
    *,
    dtype: torch.dtype,
    sessions: int = 1,
    device: str | torch.device = "cpu",
    exact: bool = True,
    vocabulary: DraftVocabulary | None = None,
    target: str | Path | None = None,
) -> CausalLM:
    """Load a draft by its directory, as `DraftFiles.of` says.

    Its cache holds a whole context for each of `sessions`. The head has the rows of `vocabulary`, or else of the one in
    the directory, if any. `target` is its target's directory or hub id. Raises as `load_model` does.
    """
    files = DraftFiles.of(directory, draft)
    return load_model(
        files.path,
        dtype=dtype,
        num_pages=files.pages(sessions),
        device=device,
        adapter=files.adapter,
        vocabulary=vocabulary or files.vocabulary,
        target=target,
        exact=exact,
    )


def load_compiled_draft(
    directory: str | Path | None, draft: str | Path, *, dtype: Dtype, sessions: int, target: str | Path | None
) -> CausalLM[NDArray[Any]]:
    """Load a draft as `load_draft_model` does, without torch."""
    files = DraftFiles.of(directory, draft)
    return load_compiled_model(
        files.path,
        dtype=dtype,
        num_pages=files.pages(sessions),
        adapter=files.adapter,
        vocabulary=files.vocabulary,
        target=target,
    )


def _compiled(
    opened: OpenedModel, dtype: Dtype, num_pages: int, threads: int | None
) -> tuple[NDArray[Any], CompiledDecoder]:
    """A cache and its decoder. Memory of pages that no session has used yet is not taken."""
    from core.model.cpu.decoder import CompiledDecoder  # which may run a compiler

    cache = np.zeros(opened.cache_shape(num_pages), np.uint16 if dtype == "bfloat16" else np.float32)
    return cache, CompiledDecoder(opened.config, opened.tensors, cache, threads)


def _in_torch(opened: OpenedModel, cache: torch.Tensor, *, exact: bool) -> Decoder:
    from core.model.torch.decoder import TorchDecoder
    from core.model.torch.graphs import cuda_recorder

    record = cuda_recorder() if cache.device.type == "cuda" else None
    return TorchDecoder.load(opened.config, opened.tensors, cache, record, exact=exact)
