"""Exact attention over paged keys and values on GPUs: the rows of a pass in blocks, which one kernel reads in place.

The shapes of a short pass follow from the number of its rows and, beyond 1,024 tokens, from the power of two of its
longest session's pages, however many sessions there are. So few recordings suffice (graphs.py). The kernel is in
paged_kernel.py, which only GPUs need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from core.model.pages import Span, pages_for
from core.model.torch.graphs import MOST_ROWS
from core.model.torch.plan import Laid

_LEAST_PAGES = 16  # of a page table: short sessions share recordings
_MOST_LINES = 16  # of one product: a line for each row and query head


class Blocks(NamedTuple):
    """Up to a few neighbouring rows of one session are a block.

    `blocks` is int64 [4, blocks]: first row, number of rows, position of the first row, and the page table. A block
    without rows is padding. `pages` is int64 [tables, longest].
    """

    blocks: torch.Tensor
    pages: torch.Tensor

    def attend(self, query: torch.Tensor, cache: torch.Tensor, window: int | None, scale: float) -> torch.Tensor:
        from core.model.torch import paged_kernel  # whose compiler comes with torch for GPUs

        return paged_kernel.attend(query, cache, self.blocks, self.pages, window, scale)

    def tensors(self) -> Iterator[torch.Tensor]:
        yield from self

    def with_tensors(self, tensors: Iterator[torch.Tensor]) -> Blocks:
        return Blocks(next(tensors), next(tensors))


class BlockLayouts:
    """Lays out the passes of a model with so many query heads for each head of keys."""

    def __init__(self, heads_per_kv_head: int) -> None:
        self._rows = max(1, _MOST_LINES // heads_per_kv_head)

    def lay(self, spans: Sequence[Span], num_rows: int) -> Laid:
        """A pass that may be recorded has as many blocks and page tables as rows, some of them empty."""
        least = num_rows if num_rows <= MOST_ROWS else 0
        blocks = [
            (span.first_row + begin, min(self._rows, span.length - begin), span.start + begin, table)
            for table, span in enumerate(spans)
            for begin in range(0, span.length, self._rows)
        ]
        blocks += [(0, 0, 0, 0)] * (least - len(blocks))
        used = [pages_for(span.start + span.length) for span in spans]
        longest = max(_LEAST_PAGES, 1 << (max(used) - 1).bit_length())
        pages = [0] * (longest * max(least, len(spans)))
        for table, (span, count) in enumerate(zip(spans, used, strict=True)):
            pages[table * longest : table * longest + count] = span.pages[:count]

        def made_of(tensors: Sequence[torch.Tensor]) -> Blocks:
            at_blocks, at_pages = tensors
            return Blocks(at_blocks.view(4, -1), at_pages.view(-1, longest))

        return Laid(([value for values in zip(*blocks, strict=True) for value in values], pages), made_of)
