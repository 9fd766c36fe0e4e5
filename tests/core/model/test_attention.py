"""How a pass is laid out for a device that is not the CPU; what it computes is held by parity and row invariance."""

from __future__ import annotations

import torch

from core.model.attention import TILE, Planner, Span


def test_a_mask_for_a_gpu_begins_where_its_memory_does() -> None:
    planner = Planner(1, 256, 8, 4096, torch.bfloat16, torch.device("meta"), replayed=True)
    for start in (4, 7, 64, 130):
        one, several = ([Span(0, start, length, range(8))] for length in (1, 3 * TILE))
        for spans in (one, several):
            for group in planner.plan([5] * spans[0].length, spans, 16).groups:
                assert group.mask.storage_offset() == 0
                assert group.mask.is_contiguous()
