"""`CausalLM`, the one implementation of `Model`: a decoder-only transformer with a paged KV cache per session.

It manages sessions and pages. A decoder computes the passes and owns the cache: compiled kernels on CPUs
(cpu/decoder.py), torch elsewhere (torch/decoder.py). On one machine a token's logits are a function of its own prefix,
bit for bit.

The kernels take and give NumPy's arrays, so a process that only drafts on a CPU never imports torch. A target has
penalties, log-probabilities and training around it, which are written in torch: for it the same arrays are tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from core.arrays import Array
from core.errors import ConfigError
from core.model.base import Model, Rows, one_by_one
from core.model.bfloat16 import DTYPES, Dtype, is_dtype
from core.model.decoder import Decoder, DecoderOptions, check_features, decoder_kind
from core.model.draft_tokens import DraftToken, StopRule
from core.model.draft_vocabulary import DraftVocabulary
from core.model.model_files import DraftFiles, open_model
from core.model.pages import PagePool, Span

if TYPE_CHECKING:
    import torch


class CausalLM(Model[Array]):
    """A model whose sessions share the pages of its decoder's KV cache."""

    def __init__(self, vocab_size: int, context: int, decoder: Decoder[Array]) -> None:
        self.vocab_size = vocab_size
        self.context = context
        self.head_ids = decoder.head_ids
        self.device = decoder.device
        self.loops = decoder.loops
        self._decoder = decoder
        self._pool = PagePool(decoder.num_pages)

    @property
    def num_used_pages(self) -> int:
        return self._pool.num_pages - self._pool.num_free

    @property
    def num_free_pages(self) -> int:
        return self._pool.num_free

    @property
    def num_prefix_pages(self) -> int:
        return self._pool.num_prefix

    def open(self, session: int) -> None:
        self._pool.open(session)

    def fork(self, source: int, session: int) -> None:
        self._pool.fork(source, session)

    def num_cached(self, session: int) -> int:
        return self._pool.length(session)

    def store_prefix(self, session: int, tokens: Sequence[int]) -> None:
        self._pool.store_prefix(session, tokens)

    def lookup_prefix(self, session: int, tokens: Sequence[int]) -> int:
        return self._pool.lookup_prefix(session, tokens)

    def rollback(self, session: int, length: int) -> None:
        self._pool.rollback(session, length)

    def close(self, session: int) -> None:
        self._pool.close(session)

    def forward(self, batch: Sequence[Rows]) -> Array:
        self._check(batch, 0)
        spans = self._make_room(batch, 0)
        return self._decoder(_tokens(batch), spans, _logit_rows(batch, spans))

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: Array | None, ending: StopRule
    ) -> list[list[DraftToken]]:
        self._check(batch, steps - 1)
        if not self._decoder.draws:
            return one_by_one(self, batch, steps, num_ids, noise, ending)
        spans = self._make_room(batch, steps - 1)
        lines = self._decoder.draw(_tokens(batch), spans, steps, num_ids, noise, ending)
        if (num_drawn := len(lines[0])) < steps:
            for rows, span in zip(batch, spans, strict=True):
                self._pool.rollback(rows.session, span.start + span.length + num_drawn - 1)
        return lines

    def _make_room(self, batch: Sequence[Rows], more: int) -> list[Span]:
        """Allocate pages for every session, with room for `more` tokens; returns the spans of the first pass."""
        starts = [self._pool.length(rows.session) for rows in batch]
        copies = self._pool.extend([(rows.session, len(rows.tokens) + more) for rows in batch])
        if copies:
            self._decoder.copy_pages(copies)
        spans, first_row = [], 0
        for rows, start in zip(batch, starts, strict=True):
            session, length = rows.session, len(rows.tokens)
            spans.append(Span(session, first_row, start, length, self._pool.pages(session)))
            first_row += length
        return spans

    def _check(self, batch: Sequence[Rows], more: int) -> None:
        if len({rows.session for rows in batch}) != len(batch):
            raise ValueError("a session may appear once in a pass")
        for rows in batch:
            if not 0 <= rows.num_logits <= len(rows.tokens) or not rows.tokens:
                raise ValueError(f"session {rows.session}: {rows.num_logits} logits of {len(rows.tokens)} tokens")
            if not 0 <= min(rows.tokens) <= max(rows.tokens) < self.vocab_size:  # kernels check no bounds
                raise ValueError(f"session {rows.session}: ids from {min(rows.tokens)} to {max(rows.tokens)}")
            if self._pool.length(rows.session) + len(rows.tokens) + more > self.context:
                raise ValueError(f"session {rows.session} would exceed the context of {self.context} tokens")


def _tokens(batch: Sequence[Rows]) -> list[int]:
    return [token for rows in batch for token in rows.tokens]


def _logit_rows(batch: Sequence[Rows], spans: Sequence[Span]) -> list[int]:
    """The rows of the pass whose logits are asked for."""
    logit_rows: list[int] = []
    for rows, span in zip(batch, spans, strict=True):
        end = span.first_row + span.length
        logit_rows += range(end - rows.num_logits, end)
    return logit_rows


def load_model(
    path: str | Path,
    *,
    dtype: torch.dtype,
    num_pages: int,
    device: str | torch.device = "cpu",
    adapter: str | Path | None = None,
    vocabulary: DraftVocabulary | None = None,
    target: str | Path | None = None,
    decoder: str = "auto",
    exact: bool = True,
    num_layers: int | None = None,
) -> CausalLM:
    """Load a model directory or hub id, with a peft LoRA adapter merged in if one is given.

    With a `vocabulary` the model, a draft, has logits of its ids only; the other rows of the head are dropped. A draft
    without an embedding reads that of its `target`, and one whose file has a part of the head has that vocabulary.
    The compiled `decoder` computes in fp32, that of torch in `dtype`. `exact` makes a token's bits depend on its prefix
    only. On a CPU they always do; on a GPU it takes kernels of fixed shapes. `num_layers` loads only the first layers,
    for timing.

    Raises `UnsupportedArchitecture` or `ConfigError`; the message names what is supported.
    """
    import torch

    name = str(dtype).removeprefix("torch.")
    if not is_dtype(name):
        raise ConfigError(f"dtype: {name} is not one that models compute with; write {' or '.join(DTYPES)}")
    options = DecoderOptions(num_pages, name, torch.device(device), exact)
    opened = open_model(path, name, adapter, vocabulary, target, num_layers)
    config = opened.config
    loaded = decoder_kind(decoder, config, options.device).load(opened, options)
    model = CausalLM(config.vocab_size, config.context, loaded)
    opened.weights.check_all_merged()
    return model


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
    from core.model.cpu.decoder import CompiledDecoder  # which may run a compiler

    opened = open_model(path, dtype, adapter, vocabulary, target)
    check_features("compiled", opened.config)
    decoder: Decoder[NDArray[Any]] = CompiledDecoder(opened.config, opened.tensors, num_pages, dtype)
    model = CausalLM(opened.config.vocab_size, opened.config.context, decoder)
    opened.weights.check_all_merged()
    return model


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
