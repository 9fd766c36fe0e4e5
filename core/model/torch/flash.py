"""FlashAttention over pages, for fast numerics on GPUs: it reads keys and values in place, without gathering them.

torch calls the installed version. Its own copy of version 2 takes only pages of multiples of 256 tokens. Version 3
(compute capability 9) and 4 (10) take any. `installed` tries each version on a small pass. Not run on a GPU so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch.nn.attention import activate_flash_attention_impl, list_flash_attention_impls, restore_flash_attention_impl
from torch.nn.attention.varlen import varlen_attn

from core.model.config import ModelConfig
from core.model.pages import PAGE_SIZE, Span, pages_for
from core.model.torch.attention import TileLayouts, padded_pages
from core.model.torch.plan import Laid, Layouts, Planner

_OWN = "torch"
_WINDOW = 50  # tokens, the longest window that is compared: it must hide some of those that the pass has
_CLOSE = 0.02  # bf16 rounds to 0.004 of a value; a wrong row's keys, or a missing key, differ by more


class PageTables(NamedTuple):
    """The rows of each session and its page table; the padding rows form the last session.

    `row_starts` is int32 [sessions + 1], `lengths` int32 [sessions], in keys, `pages` int32 [sessions, longest].
    No session has more than `max_rows` rows.
    """

    row_starts: torch.Tensor
    lengths: torch.Tensor
    pages: torch.Tensor
    max_rows: int

    def attend(self, query: torch.Tensor, cache: torch.Tensor, window: int | None, scale: float) -> torch.Tensor:
        kv_heads, head_dim = cache.shape[0] // 2, query.shape[-1]
        keys, values = cache.view(2, kv_heads, -1, PAGE_SIZE, head_dim).permute(0, 2, 3, 1, 4).unbind(0)
        attended = varlen_attn(
            query,
            keys,
            values,
            self.row_starts,
            None,
            self.max_rows,
            self.pages.shape[1] * PAGE_SIZE,
            scale=scale,
            # causal: a row sees so many keys before its own, or all, and the last row of a session is its last key's
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=True,
            seqused_k=self.lengths,
            block_table=self.pages,
        )
        assert isinstance(attended, torch.Tensor)
        return attended.flatten(1)

    def constants(self) -> tuple[int, ...]:
        return (self.max_rows,)

    def tensors(self) -> Iterator[torch.Tensor]:
        yield from (self.row_starts, self.lengths, self.pages)

    def with_tensors(self, tensors: Iterator[torch.Tensor]) -> PageTables:
        return PageTables(next(tensors), next(tensors), next(tensors), self.max_rows)


class PageTableLayouts:
    """Lays out passes over a cache of `num_pages` pages and a spare one behind them for the padding rows."""

    def __init__(self, num_pages: int) -> None:
        self._num_pages = num_pages

    def lay(self, spans: Sequence[Span], num_rows: int) -> Laid:
        end = spans[-1].first_row + spans[-1].length
        row_starts = [*(span.first_row for span in spans), end, num_rows]
        lengths = [*(span.start + span.length for span in spans), PAGE_SIZE]
        longest = padded_pages(max(map(pages_for, lengths)))
        pages: list[int] = []
        for own in (*(span.pages for span in spans), [self._num_pages]):
            pages += [*own[:longest], *[0] * (longest - len(own))]
        max_rows = 1 << (max(num_rows - end, *(span.length for span in spans)) - 1).bit_length()

        def made_of(tensors: Sequence[torch.Tensor]) -> PageTables:
            starts, num_keys, tables = (tensor.int() for tensor in tensors)
            return PageTables(starts, num_keys, tables.view(-1, longest), max_rows)

        return Laid((row_starts, lengths, pages), made_of)


def installed(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> str | None:
    """Activate a FlashAttention that agrees with the tiles on this model's pages; returns its name, or None."""
    for name in (_OWN, *reversed(list_flash_attention_impls())):
        try:
            if name != _OWN:
                activate_flash_attention_impl(name)
            if _agrees(config, dtype, device):
                return name
        except (ImportError, RuntimeError, TypeError, ValueError):  # not installed, or not for this device or shape
            pass
        restore_flash_attention_impl(_raise_warn=False)
    return None


def _agrees(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> bool:
    """Compare with tiles on a pass of three sessions with unordered pages and a padding row."""
    generator = torch.Generator(device).manual_seed(0)
    spans = [Span(0, 0, 70, 3, [5, 2]), Span(1, 3, 0, 1, [7]), Span(2, 4, 190, 7, [6, 0, 3, 1])]
    rows, num_pages, heads = 12, 8, config.num_heads
    cache = _random((2 * config.num_kv_heads, num_pages + 1, PAGE_SIZE * config.head_dim), generator, dtype)
    query = _random((rows, heads, config.head_dim), generator, dtype)
    windows = {None if layer.window is None else min(layer.window, _WINDOW) for layer in config.layers}
    scale = 1 / math.sqrt(config.query_scalar)
    tiles = TileLayouts(heads // config.num_kv_heads, 256, windows, dtype, device)

    def attended(layouts: Layouts, window: int | None) -> torch.Tensor:
        plan = Planner(layouts, num_pages, device).plan([0] * (rows - 1), spans, rows)
        return plan.layout.attend(query, cache, window, scale)[: rows - 1].float()

    tables = PageTableLayouts(num_pages)
    return all(
        torch.allclose(attended(tables, window), attended(tiles, window), atol=_CLOSE, rtol=_CLOSE)
        for window in windows
    )


def _random(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device=generator.device).to(dtype)
