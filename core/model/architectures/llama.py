"""Llama, and the many models that are saved as one."""

from __future__ import annotations

from core.model.architectures.common import Architecture, plan_like_llama

ARCHITECTURE = Architecture("LlamaForCausalLM", plan_like_llama, gguf="llama", gguf_pairs=True)
