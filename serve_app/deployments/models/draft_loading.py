"""Loads drafts with the KV cache and numerics of the configuration; on a CPU without torch."""

from __future__ import annotations

from typing import Any

from core.model.causal_lm import CausalLM, load_compiled_draft, load_draft_model
from core.model.loader import adapted_model
from core.model_names import locate
from serve_app.config import Draft


def load_draft(draft: Draft, directory: str | None, target: str | None = None) -> CausalLM[Any]:
    """Load the draft of a pool; `directory` is as in `core.model.model_files.DraftFiles.of`.

    A draft that was made from the model `target` reads its embedding. The cache holds a whole context for each session,
    because a draft can neither preempt a session nor let it wait.
    """
    path, targets = locate(draft.model), None if target is None else locate(target)
    if draft.device == "cpu":
        return load_compiled_draft(directory, path, dtype=draft.dtype, sessions=draft.max_sessions, target=targets)
    import torch

    return load_draft_model(
        directory,
        path,
        dtype=getattr(torch, draft.dtype),
        sessions=draft.max_sessions,
        device=draft.device,
        exact=False,
        target=targets,
    )


def draft_model(draft: Draft, directory: str | None) -> str:
    """The model whose weights and tokenizer a pool loads; an adapter is applied to it."""
    return adapted_model(directory, locate(draft.model))
