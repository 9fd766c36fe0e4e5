"""The layout of a pass for a device that is not the CPU; parity and row invariance hold the results."""

from __future__ import annotations

import torch

from core.model.pages import Span
from core.model.torch.attention import TILE, TileLayouts, Tiles
from core.model.torch.plan import Planner


def test_a_mask_for_a_gpu_begins_where_its_memory_does() -> None:
    device = torch.device("meta")
    layouts = TileLayouts(1, 256, [None, 96], torch.bfloat16, device)
    planner = Planner(layouts, 8, device, replayed=True)
    for start in (4, 7, 64, 130):
        one, several = ([Span(0, 0, start, length, range(8))] for length in (1, 3 * TILE))
        for spans in (one, several):
            layout = planner.plan([5] * spans[0].length, spans, 16).layout
            assert isinstance(layout, Tiles)
            for group in layout.groups:
                assert [*group.masks] == [None, 96]
                for mask in group.masks.values():
                    assert mask.storage_offset() == 0
                    assert mask.is_contiguous()
