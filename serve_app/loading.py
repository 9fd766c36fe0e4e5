"""Loads target and drafts as a service needs them: with room in the cache for every session it may hold at once."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from core.family import locate
from core.model.base import Model
from core.model.causal_lm import load_model
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.model.pages import PAGE_SIZE
from serve_app.config import Draft, Target


def load_target(target: Target) -> Model:
    """The target, as its configuration says."""
    return _load(locate(target.model), target.dtype, target.device, target.max_sessions, None)


def load_draft(draft: Draft, directory: str | None) -> Model:
    """What a pool serves: the draft with the PEFT adapter of `directory` merged, or the whole model that lies there."""
    model = draft_model(draft, directory)
    return _load(
        model, draft.dtype, draft.device, draft.max_sessions, adapter=None if model == directory else directory
    )


def draft_model(draft: Draft, directory: str | None) -> str:
    """The model that a pool's tokenizer and its weights, but for an adapter's, come from."""
    if directory is None or (Path(directory) / "adapter_config.json").is_file():
        return locate(draft.model)
    return directory


def _load(name: str, dtype: str, device: str, sessions: int, adapter: str | None) -> Model:
    path = resolve(name)
    pages_each = math.ceil(ModelConfig.load(path).context / PAGE_SIZE)
    return load_model(
        path,
        dtype=getattr(torch, dtype),
        device=device,
        num_pages=sessions * pages_each,
        adapter=adapter,
    )
