"""Qwen 2 and 2.5: a Llama with biases on queries, keys and values, and for some layers perhaps a sliding window."""

from __future__ import annotations

from core.model.architectures.common import Architecture, Raw, plan_like_llama, up_to_window
from core.model.config import ModelConfig


def plan(raw: Raw) -> ModelConfig:
    context = up_to_window(raw) if raw.get("use_sliding_window") else raw["max_position_embeddings"]
    return plan_like_llama(raw, context=context, qkv_bias=True)


ARCHITECTURE = Architecture("Qwen2ForCausalLM", plan, gguf="qwen2")
