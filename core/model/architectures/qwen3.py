"""Qwen 3: a Llama that norms each head of queries and keys, and for some layers has perhaps a sliding window."""

from __future__ import annotations

from core.model.architectures.common import Architecture, Raw, plan_like_llama, up_to_window
from core.model.config import ModelConfig


def plan(raw: Raw) -> ModelConfig:
    context = up_to_window(raw) if raw.get("use_sliding_window") else raw["max_position_embeddings"]
    return plan_like_llama(raw, context=context, qk_norm=True)


ARCHITECTURE = Architecture("Qwen3ForCausalLM", plan, gguf="qwen3")
