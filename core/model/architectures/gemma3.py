"""Gemma 3's text models: most layers see a sliding window, and rotate by a base of their own."""

from __future__ import annotations

import math

from core.errors import ConfigError
from core.model.architectures.common import Architecture, Raw, plan_like_llama, read_activation, rope_of
from core.model.config import LayerPlan, ModelConfig, WeightNames

_SLIDING, _FULL = "sliding_attention", "full_attention"
_NAMES = WeightNames(
    attention_out_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_out_norm="post_feedforward_layernorm",
)


def plan(raw: Raw) -> ModelConfig:
    if raw.get("use_bidirectional_attention"):
        raise ConfigError("use_bidirectional_attention is not supported: a token must not see those behind it")
    return plan_like_llama(
        raw,
        layers=_layers(raw),
        head_dim=raw.get("head_dim", 256),
        query_scalar=raw.get("query_pre_attn_scalar", 256),
        qk_norm=True,
        tied=raw.get("tie_word_embeddings", True),
        activation=read_activation(raw.get("hidden_activation", "gelu_pytorch_tanh")),
        norm_offset=1.0,
        embedding_scale=math.sqrt(raw["hidden_size"]),
        logit_softcap=raw.get("final_logit_softcapping"),
        attention_softcap=raw.get("attn_logit_softcapping"),
        names=_NAMES,
    )


def _layers(raw: Raw) -> tuple[LayerPlan, ...]:
    every = raw.get("sliding_window_pattern") or raw.get("_sliding_window_pattern") or 6
    types = raw.get("layer_types") or [
        _SLIDING if number % every else _FULL for number in range(1, raw["num_hidden_layers"] + 1)
    ]
    ropes = raw.get("rope_parameters") or {}
    local = rope_of(ropes.get(_SLIDING) or {}, raw, raw.get("rope_local_base_freq") or 10_000.0)
    full = rope_of(ropes.get(_FULL) or raw.get("rope_scaling") or {}, raw, raw.get("rope_theta") or 1_000_000.0)
    by_type = {_SLIDING: LayerPlan(local, raw.get("sliding_window", 4096)), _FULL: LayerPlan(full)}
    if unknown := set(types) - set(by_type):
        raise ConfigError(f"layer_types: {min(unknown)!r} is not supported; known: {', '.join(by_type)}")
    return tuple(by_type[name] for name in types)


ARCHITECTURE = Architecture("Gemma3ForCausalLM", plan)
