"""vLLM's model runners as a `Decoder`: their cache, their kernels, their ranks; sessions and sampling stay ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from core.model.bfloat16 import Dtype
from core.model.draft_tokens import DraftToken, StopRule
from core.model.pages import PageCopy, Span
from core.model.vllm.options import RESERVED

_PAD = -1 << 62  # a session's number that no session has


class Cache(NamedTuple):
    """The KV cache that vLLM has allocated: blocks of `block_size` tokens, and the kinds of its groups of layers."""

    num_blocks: int
    block_size: int
    kinds: list[str]


class Pass(NamedTuple):
    """The tokens of all rows, the spans that they form, the rows whose logits are wanted, and copies made before."""

    tokens: Sequence[int]
    spans: Sequence[Span]
    logit_rows: Sequence[int]
    copies: Sequence[PageCopy]


class VllmDecoder:
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
        self._no_logits = torch.empty(0, num_ids, device=device)
        self._copies: list[PageCopy] = []
        self._doubles = doubles

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], logit_rows: Sequence[int]) -> torch.Tensor:
        if self._doubles and len(tokens) == 1:
            tokens, spans = [*tokens, 0], [*spans, Span(_PAD, 1, 0, 1, [self.num_pages])]
        copies, self._copies = self._copies, []
        ordered = Pass(tokens, spans, logit_rows, copies)
        logits: torch.Tensor | None = self._engine.collective_rpc("run_pass", args=(ordered,))[0]
        return self._no_logits if logits is None else logits

    def draw(
        self,
        tokens: Sequence[int],
        spans: Sequence[Span],
        steps: int,
        num_ids: int,
        noise: torch.Tensor | None,
        ending: StopRule,
    ) -> list[list[DraftToken]]:
        raise NotImplementedError("a target draws nothing")

    def copy_pages(self, copies: Sequence[PageCopy]) -> None:
        """They are made with the next pass, which follows."""
        self._copies += copies
