"""Exact attention over pages on CPUs: tiles of fixed shape make a row's bits a function of its position only.

A tile is the `TILE` positions that start at a multiple of `TILE`. A row sits in its tile at `position % TILE`; empty
places are padding. A tile attends over whole pages, as many as `padded_pages` gives for its position. Keys after the
row's own are masked out, and so are those before its window. So the row's place, the shape of its products and the
length of its sums follow from its position alone. The tiles of a pass are batched as independent products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812

from core.model.pages import PAGE_SIZE, Span, pages_for
from core.model.torch.plan import Laid

TILE = 4


class Group(NamedTuple):
    """Tiles `first .. last - 1` of a pass, which attend over equally many pages.

    `pages` is int64 [sessions * pages each]. `masks` are additive, by window: [tiles, 1, TILE * heads per kv head,
    keys].
    """

    first: int
    last: int
    pages: torch.Tensor
    num_keys: int
    masks: Mapping[int | None, torch.Tensor]


class Tiles(NamedTuple):
    """The layout of rows in tiles: `row_of_place` [tiles * TILE] and its inverse `place_of_row` [rows]."""

    row_of_place: torch.Tensor
    place_of_row: torch.Tensor
    groups: Sequence[Group]

    def attend(self, query: torch.Tensor, cache: torch.Tensor, window: int | None, scale: float) -> torch.Tensor:
        _, heads, head_dim = query.shape
        kv_heads = cache.shape[0] // 2
        tiles = query.index_select(0, self.row_of_place).view(-1, TILE, kv_heads, heads // kv_heads, head_dim)
        tiles = tiles.transpose(1, 2).reshape(tiles.shape[0], kv_heads, -1, head_dim)
        outputs = [_attend_group(tiles, cache, group, group.masks[window], scale) for group in self.groups]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        by_place = output.view(-1, kv_heads, TILE, heads // kv_heads, head_dim).transpose(1, 2)
        return by_place.reshape(-1, heads * head_dim).index_select(0, self.place_of_row)

    def tensors(self) -> Iterator[torch.Tensor]:
        yield from (self.row_of_place, self.place_of_row)
        for group in self.groups:
            yield from (group.pages, *group.masks.values())

    def with_tensors(self, tensors: Iterator[torch.Tensor]) -> Tiles:
        row_of_place, place_of_row = next(tensors), next(tensors)
        groups = [
            group._replace(pages=next(tensors), masks={window: next(tensors) for window in group.masks})
            for group in self.groups
        ]
        return Tiles(row_of_place, place_of_row, groups)


def _attend_group(
    tiles: torch.Tensor, cache: torch.Tensor, group: Group, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    query = tiles[group.first : group.last]
    kv_heads, head_dim = query.shape[1], query.shape[3]
    keys_values = cache.index_select(1, group.pages)
    keys, values = keys_values.view(2, kv_heads, -1, group.num_keys, head_dim).transpose(1, 2).unbind(0)
    if keys.shape[0] != query.shape[0]:  # the tiles of one session share what was gathered once
        keys, values = keys.expand(query.shape[0], -1, -1, -1), values.expand(query.shape[0], -1, -1, -1)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)


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
    """Lays passes into tiles, with a mask for each of `windows` that layers have."""

    def __init__(
        self,
        heads_per_kv_head: int,
        context: int,
        windows: Iterable[int | None],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._max_keys = padded_pages(pages_for(context)) * PAGE_SIZE
        # In a tile's products the place is outside and the head inside: row r has place r // heads and head r % heads.
        places = torch.arange(TILE, device=device).repeat_interleave(heads_per_kv_head)[:, None]
        keys = torch.arange(-self._max_keys, self._max_keys, device=device)
        # Column `max_keys + d` is for a key `d` behind the tile's first position: each tile's mask is a part of these.
        self._masks = {}
        for window in windows:
            visible = keys <= places if window is None else (keys <= places) & (keys > places - window)
            self._masks[window] = torch.where(visible, 0.0, -torch.inf).to(dtype)

    def lay(self, spans: Sequence[Span], num_rows: int) -> Laid:
        by_pages: dict[int, list[_Run]] = {}
        for span in spans:
            for padded, run in _runs(span):
                by_pages.setdefault(padded, []).append(run)
        row_of_place: list[int] = []
        place_of_row = [0] * num_rows
        for runs in by_pages.values():
            for run in runs:
                _lay(run, row_of_place, place_of_row)
        pages = [_pages(padded, runs) for padded, runs in by_pages.items()]

        def made_of(tensors: Sequence[torch.Tensor]) -> Tiles:
            at_rows, at_places, *at_pages = tensors
            groups = list[Group]()
            for (padded, runs), table in zip(by_pages.items(), at_pages, strict=True):
                groups.append(self._group(groups[-1].last if groups else 0, padded, runs, table))
            return Tiles(at_rows, at_places, groups)

        return Laid((row_of_place, place_of_row, *pages), made_of)

    def _group(self, first: int, padded: int, runs: Sequence[_Run], pages: torch.Tensor) -> Group:
        num_keys = padded * PAGE_SIZE
        columns = [self._max_keys - tile * TILE for run in runs for tile in range(run.first_tile, run.last_tile)]
        masks = {
            window: torch.stack([mask[:, column : column + num_keys] for column in columns]).unsqueeze(1)
            for window, mask in self._masks.items()
        }
        return Group(first, first + len(columns), pages, num_keys, masks)


def _pages(padded: int, runs: Sequence[_Run]) -> list[int]:
    """The pages of each tile, or once those of a single run, whose tiles share them."""
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
