"""Mistral: a Llama whose layers may have a sliding window. A session ends where that would begin to hide tokens."""

from __future__ import annotations

from core.model.architectures.common import Architecture, Raw, plan_like_llama, up_to_window
from core.model.config import ModelConfig


def plan(raw: Raw) -> ModelConfig:
    return plan_like_llama(raw, context=up_to_window(raw))


ARCHITECTURE = Architecture("MistralForCausalLM", plan)
