"""Loads target and drafts as a service needs them: with room in the cache for every session it may hold at once."""

from __future__ import annotations

import math

import torch

from core.model.base import Model
from core.model.causal_lm import load_model
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.model.pages import PAGE_SIZE
from serve_app.config import Draft, Target, locate


def load_target(target: Target) -> Model:
    """The target, as its configuration says."""
    return _load(target.model, target.dtype, target.device, target.max_sessions, None)


def load_draft(draft: Draft, adapter: str | None) -> Model:
    """The draft with a pool's adapter merged into it."""
    return _load(draft.model, draft.dtype, draft.device, draft.max_sessions, adapter)


def _load(name: str, dtype: str, device: str, sessions: int, adapter: str | None) -> Model:
    path = resolve(locate(name))
    pages_each = math.ceil(ModelConfig.load(path).context / PAGE_SIZE)
    return load_model(
        path,
        dtype=getattr(torch, dtype),
        device=device,
        num_pages=sessions * pages_each,
        adapter=None if adapter is None else locate(adapter),
    )
