"""A model whose passes take a while, as a large one's on another device do: drafts pay for it on any machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from core.model.base import Rows
from core.model.causal_lm import CausalLM

SECONDS = 0.020  # of a pass, beside what it computes


def unhurried(model: CausalLM) -> CausalLM:
    """The same model; what it computes stays as it is."""
    forward = model.forward

    def slow(batch: Sequence[Rows]) -> torch.Tensor:
        time.sleep(SECONDS)
        return forward(batch)

    model.forward = slow  # type: ignore[method-assign]
    return model
