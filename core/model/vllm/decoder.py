"""vLLM's model runners as a `Decoder`: their cache, their kernels, their ranks; sessions and sampling stay ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from core.model.bfloat16 import Dtype
from core.model.decoder import Decoder
from core.model.pages import PageCopy, Span
from core.model.vllm.options import RESERVED

_PAD = -1 << 62  # a session's number that no session has


class Cache(NamedTuple):
    """The KV cache that vLLM has allocated, in blocks of `block_size` tokens, and the largest pass over it.

    `kinds` are the classes of its groups of layers.
    """

    num_blocks: int
    block_size: int
    kinds: list[str]
    max_rows: int
    max_sessions: int


class Pass(NamedTuple):
    """The tokens of all rows, the spans that they form, the rows whose logits are wanted, and copies made before.

    If it is `doubled`, no product is of one row.
    """

    tokens: Sequence[int]
    spans: Sequence[Span]
    logit_rows: Sequence[int]
    copies: Sequence[PageCopy]
    doubled: bool = False


class VllmDecoder(Decoder[torch.Tensor]):
    """Runs every pass on all ranks of `engine`, of which rank 0 is in this process and keeps the logits.

    With `doubles` a lone row gets company: on CPUs vLLM's products of one row are of other kernels, with other bits.
    """

    draws = loops = False

    def __init__(
        self, engine: Any, cache: Cache, num_ids: int, dtype: Dtype, device: torch.device, *, doubles: bool
    ) -> None:
        self.num_pages = cache.num_blocks - RESERVED
        self.dtype, self.device = dtype, device
        self.head_ids: torch.Tensor | None = None
        self._engine = engine
        self._max_rows = cache.max_rows - 1  # and one beside a lone row
        self._max_sessions = cache.max_sessions
        self._no_logits = torch.empty(0, num_ids, device=device)
        self._copies: list[PageCopy] = []
        self._doubles = doubles

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], logit_rows: Sequence[int]) -> torch.Tensor:
        if len(spans) > self._max_sessions:
            raise ValueError(f"{len(spans)} sessions in a pass; vLLM was loaded for {self._max_sessions}")
        logits = [self._no_logits]
        for first in range(0, len(tokens), self._max_rows):
            part = range(first, min(first + self._max_rows, len(tokens)))
            rows = [row - first for row in logit_rows if row in part]
            logits.append(self._run(tokens[first : part.stop], [*_within(spans, part)], rows))
        return torch.cat(logits) if len(logits) > 2 else logits[-1]

    def _run(self, tokens: Sequence[int], spans: Sequence[Span], logit_rows: Sequence[int]) -> torch.Tensor:
        if self._doubles and len(tokens) == 1:
            tokens, spans = [*tokens, 0], [*spans, Span(_PAD, 1, 0, 1, [self.num_pages])]
        copies, self._copies = self._copies, []
        ordered = Pass(tokens, spans, logit_rows, copies, self._doubles)
        logits: torch.Tensor | None = self._engine.collective_rpc("run_pass", args=(ordered,))[0]
        return self._no_logits if logits is None else logits

    def copy_pages(self, copies: Sequence[PageCopy]) -> None:
        """The next pass makes the copies, before it writes. It must follow before any page is given to others."""
        self._copies += copies


def _within(spans: Sequence[Span], rows: range) -> Iterator[Span]:
    """The spans of a part of a pass, whose first row is 0."""
    for span in spans:
        begin, end = max(span.first_row, rows.start), min(span.first_row + span.length, rows.stop)
        if begin < end:
            skipped = begin - span.first_row
            yield span._replace(first_row=begin - rows.start, start=span.start + skipped, length=end - begin)
