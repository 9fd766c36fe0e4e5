"""Phi 3 to 4: a Llama that stores stacked matrices as one, and may have a sliding window in all layers.

With LongRoPE a session ends with the original context, up to which the short factors hold.
"""

from __future__ import annotations

from core.model.architectures.common import Architecture, Raw, plan_like_llama, read_rope
from core.model.config import LayerPlan, ModelConfig, WeightNames


def plan(raw: Raw) -> ModelConfig:
    layer = LayerPlan(read_rope(raw), raw.get("sliding_window"))
    names = WeightNames(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",))
    return plan_like_llama(raw, layers=(layer,) * raw["num_hidden_layers"], names=names)


ARCHITECTURE = Architecture("Phi3ForCausalLM", plan)
