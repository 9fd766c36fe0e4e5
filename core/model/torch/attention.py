"""Exact attention over paged keys and values: tiles of fixed shape make a row's bits a function of its position only.

A tile is the `TILE` positions that start at a multiple of `TILE`. A row sits in its tile at `position % TILE`; empty
places are padding. A tile attends over whole pages, as many as `padded_pages` gives for its position, and keys after
the row's own are masked out. So the row's place, the shape of its products and the length of its sums follow from its
position alone. The tiles of a pass are batched as independent products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812

from core.model.pages import PAGE_SIZE, Span, pages_for
from core.model.torch.plan import Laid

TILE = 4
_WORTH_A_CALL = 1 << 18  # bytes of keys and values; from there on a CPU reads them in place faster than it gathers them


class Group(NamedTuple):
    """Tiles `first .. last - 1` of a pass, which attend over equally many pages.

    `pages` is a slice of the cache if they are consecutive, else int64 [sessions * pages each]. `mask` is additive:
    [tiles or 1, 1, TILE * heads per kv head, keys].
    """

    first: int
    last: int
    pages: slice | torch.Tensor
    num_keys: int
    mask: torch.Tensor


class Tiles(NamedTuple):
    """The layout of rows in tiles: `row_of_place` [tiles * TILE] and its inverse `place_of_row` [rows]."""

    row_of_place: torch.Tensor
    place_of_row: torch.Tensor
    groups: Sequence[Group]

    def attend(self, query: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        _, heads, head_dim = query.shape
        kv_heads = cache.shape[0] // 2
        tiles = query.index_select(0, self.row_of_place).view(-1, TILE, kv_heads, heads // kv_heads, head_dim)
        tiles = tiles.transpose(1, 2).reshape(tiles.shape[0], kv_heads, -1, head_dim)
        outputs = [_attend_group(tiles, cache, group, head_dim) for group in self.groups]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        by_place = output.view(-1, kv_heads, TILE, heads // kv_heads, head_dim).transpose(1, 2)
        return by_place.reshape(-1, heads * head_dim).index_select(0, self.place_of_row)

    def constants(self) -> tuple[int, ...]:
        return ()

    def tensors(self) -> Iterator[torch.Tensor]:
        """The pages of all groups must be tensors, not slices."""
        yield from (self.row_of_place, self.place_of_row)
        for group in self.groups:
            assert isinstance(group.pages, torch.Tensor)
            yield from (group.pages, group.mask)

    def with_tensors(self, tensors: Iterator[torch.Tensor]) -> Tiles:
        row_of_place, place_of_row = next(tensors), next(tensors)
        groups = [group._replace(pages=next(tensors), mask=next(tensors)) for group in self.groups]
        return Tiles(row_of_place, place_of_row, groups)


def _attend_group(tiles: torch.Tensor, cache: torch.Tensor, group: Group, head_dim: int) -> torch.Tensor:
    query = tiles[group.first : group.last]
    kv_heads = tiles.shape[1]
    pages = group.pages
    keys_values = cache[:, pages] if isinstance(pages, slice) else cache.index_select(1, pages)
    keys, values = keys_values.view(2, kv_heads, -1, group.num_keys, head_dim).transpose(1, 2).unbind(0)
    if keys.shape[0] != query.shape[0]:  # the tiles of one session share what was gathered once
        keys, values = keys.expand(query.shape[0], -1, -1, -1), values.expand(query.shape[0], -1, -1, -1)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=group.mask)


def padded_pages(pages: int) -> int:
    """The pages a tile is computed over: the next of 1, 2, 3, 4, 6, 8, 12, 16, ..., so that sessions share a group."""
    power = 1 << (pages - 1).bit_length()
    return power * 3 // 4 if power >= 4 and pages <= power * 3 // 4 else power


class _Run(NamedTuple):
    """Neighbouring tiles of one session that attend over equally many pages."""

    span: Span
    first_tile: int
    last_tile: int


def _runs(span: Span) -> list[tuple[int, _Run]]:
    """Cut a span's tiles where the number of padded pages changes: [(padded pages, run)]."""
    runs = []
    tile, end = span.start // TILE, -(-(span.start + span.length) // TILE)
    while tile < end:
        padded = padded_pages(pages_for((tile + 1) * TILE))
        stop = min(end, padded * PAGE_SIZE // TILE)
        runs.append((padded, _Run(span, tile, stop)))
        tile = stop
    return runs


class TileLayouts:
    """Lays passes into tiles. `page_bytes` is the size of a page's keys and values in one layer.

    If plans are `replayed`, pages are tensors, not slices of the cache.
    """

    def __init__(
        self,
        heads_per_kv_head: int,
        context: int,
        num_pages: int,
        page_bytes: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        replayed: bool = False,
    ) -> None:
        self._num_pages = num_pages
        self._page_bytes = page_bytes
        self._replayed = replayed
        self._max_keys = padded_pages(pages_for(context)) * PAGE_SIZE
        # In a tile's products the place is outside and the head inside: row r has place r // heads and head r % heads.
        places = torch.arange(TILE, device=device).repeat_interleave(heads_per_kv_head)
        keys = torch.arange(-self._max_keys, self._max_keys, device=device)
        # Column `max_keys + d` is for a key `d` behind the tile's first position: each tile's mask is a part of this.
        self._mask = torch.where(keys <= places[:, None], 0.0, -torch.inf).to(dtype)

    def lay(self, spans: Sequence[Span], num_rows: int) -> Laid:
        grouped = self._grouped(spans)
        row_of_place: list[int] = []
        place_of_row = [0] * num_rows
        for _, runs in grouped:
            for run in runs:
                _lay(run, row_of_place, place_of_row)
        pages = [self._pages(padded, runs) for padded, runs in grouped]
        gathered = [each for each in pages if not isinstance(each, slice)]

        def made_of(tensors: Sequence[torch.Tensor]) -> Tiles:
            at_rows, at_places, *rest = tensors
            moved, groups = iter(rest), list[Group]()
            for (padded, runs), each in zip(grouped, pages, strict=True):
                first = groups[-1].last if groups else 0
                groups.append(self._group(first, padded, runs, each if isinstance(each, slice) else next(moved)))
            return Tiles(at_rows, at_places, groups)

        return Laid((row_of_place, place_of_row, *gathered), made_of)

    def _grouped(self, spans: Sequence[Span]) -> list[tuple[int, list[_Run]]]:
        """The runs by their number of pages; a run worth a call of its own forms its own group."""
        alone: list[tuple[int, list[_Run]]] = []
        by_pages: dict[int, list[_Run]] = {}
        for span in spans:
            for padded, run in _runs(span):
                if self._read_in_place(padded, run):
                    alone.append((padded, [run]))
                else:
                    by_pages.setdefault(padded, []).append(run)
        return [*alone, *by_pages.items()]

    def _group(self, first: int, padded: int, runs: Sequence[_Run], pages: slice | torch.Tensor) -> Group:
        starts = [tile * TILE for run in runs for tile in range(run.first_tile, run.last_tile)]
        masks = [self._mask[:, self._max_keys - start :][:, : padded * PAGE_SIZE] for start in starts]
        # A part of the mask may start at any address, but GPU kernels read 16 bytes at addresses divisible by 16.
        as_it_lies = len(masks) == 1 and not self._replayed
        mask = masks[0][None, None] if as_it_lies else torch.stack(masks).unsqueeze(1)
        return Group(first, first + len(starts), pages, padded * PAGE_SIZE, mask)

    def _read_in_place(self, padded: int, run: _Run) -> bool:
        """True if the run forms its own group, although other runs may attend over equally many pages."""
        large = not self._replayed and padded * self._page_bytes >= _WORTH_A_CALL
        return large and _together(run.span.pages[:padded], padded, self._num_pages) is not None

    def _pages(self, padded: int, runs: Sequence[_Run]) -> slice | list[int]:
        if len(runs) == 1 and not self._replayed:
            together = _together(runs[0].span.pages[:padded], padded, self._num_pages)
            if together is not None:
                return together
        pages: list[int] = []
        for run in runs:
            own = list(run.span.pages[:padded])
            own += [0] * (padded - len(own))
            pages += own * (run.last_tile - run.first_tile if len(runs) > 1 else 1)
        return pages


def _lay(run: _Run, row_of_place: list[int], place_of_row: list[int]) -> None:
    """Append the run's tiles to the places of the pass; a place without a row repeats the span's first row."""
    span = run.span
    for position in range(run.first_tile * TILE, run.last_tile * TILE):
        if span.start <= position < span.start + span.length:
            row = span.first_row + position - span.start
            place_of_row[row] = len(row_of_place)
        else:
            row = span.first_row
        row_of_place.append(row)


def _together(pages: Sequence[int], padded: int, num_pages: int) -> slice | None:
    """The pages as a slice of the cache if they are consecutive; further pages of the slice are masked out."""
    first = pages[0]
    if first + padded > num_pages or any(page != first + index for index, page in enumerate(pages)):
        return None
    return slice(first, first + padded)
