"""What NumPy holds as tensors of torch, over the same memory: for a target, for training, and for torch's decoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from core.model.bfloat16 import Weight
from core.model.checkpoint import Checkpoint
from core.model.cpu.decoder import CompiledDecoder
from core.model.draft_tokens import DraftToken, StopRule
from core.model.pages import Span


def as_tensor(array: Weight) -> torch.Tensor:
    """The array as a tensor; uint16 is bfloat16."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor


class TensorCheckpoint:
    """A `Checkpoint` that gives tensors."""

    def __init__(self, directory: Path) -> None:
        self._arrays = Checkpoint(directory)
        self.names = self._arrays.names

    def __getitem__(self, name: str) -> torch.Tensor:
        return as_tensor(self._arrays[name])


class TensorDecoder:
    """A compiled decoder that takes and gives tensors."""

    draws, loops = CompiledDecoder.draws, CompiledDecoder.loops
    device = torch.device("cpu")

    def __init__(self, compiled: CompiledDecoder) -> None:
        self.compiled = compiled
        self.num_pages, self.dtype = compiled.num_pages, compiled.dtype
        self.head_ids = None if compiled.head_ids is None else torch.from_numpy(compiled.head_ids)
        self.copy_pages = compiled.copy_pages

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], logit_rows: Sequence[int]) -> torch.Tensor:
        return torch.from_numpy(self.compiled(tokens, spans, logit_rows))

    def draw(
        self,
        tokens: Sequence[int],
        spans: Sequence[Span],
        steps: int,
        num_ids: int,
        noise: torch.Tensor | None,
        ending: StopRule,
    ) -> list[list[DraftToken]]:
        floats = None if noise is None else noise.float().numpy()
        return self.compiled.draw(tokens, spans, steps, num_ids, floats, ending)
