"""Tiny models with random weights, loaded into vLLM on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from core.model.bfloat16 import Dtype
from core.model.causal_lm import CausalLM
from core.model.pages import PAGE_SIZE
from core.model.vllm.loading import load_model
from core.model.vllm.options import VllmOptions

SIZES: dict[str, object] = {"hidden_size": 128, "vocab_size": 304, "max_position_embeddings": 512}
"""vLLM's attention on CPUs wants heads of 32 or more."""


def in_vllm(
    directory: Path, dtype: Dtype = "float32", *, tokens: int = 2048, sessions: int = 4, **engine: Any
) -> CausalLM:
    """A model with a cache of so many `tokens`, whose passes are of at most so many `sessions`."""
    torch.set_num_threads(1)  # with more its bits depend on the batch
    pages, settings = tokens // PAGE_SIZE, {"enforce_eager": True, **engine}
    return load_model(directory, VllmOptions(dtype, "cpu", True, sessions, num_pages=pages, engine=settings))
