"""The context of the target, read where it is not loaded."""

from __future__ import annotations

from core.model.config import ModelConfig
from core.model.decoder import VLLM
from core.model.loader import resolve
from core.model.vllm import options
from core.model_names import locate
from serve_app.config import Target


def context_of(target: Target) -> int:
    """The most tokens of an answer with its prompt."""
    path = resolve(locate(target.model))
    return options.context_of(path, target.vllm) if target.decoder == VLLM else ModelConfig.load(path).context
