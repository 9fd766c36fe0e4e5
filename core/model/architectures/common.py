"""What the config.json of every architecture says alike, and the error for what none of them has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.errors import ConfigError
from core.model.config import Activation, LayerPlan, ModelConfig, RopeConfig

Raw = Mapping[str, Any]
"""The fields of a config.json."""

ROPE_TYPES = ("default", "linear", "llama3", "dynamic", "longrope")
ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True)
class Architecture:
    """One architecture: `plan` reads a config.json, and `gguf` is its name in GGUF files, if it is read from those.

    `gguf_pairs`: llama.cpp stores the rows of queries and keys so that neighbours are rotated together.
    """

    name: str
    plan: Callable[[Raw], ModelConfig]
    gguf: str | None = None
    gguf_pairs: bool = False


def plan_like_llama(raw: Raw, *, layers: tuple[LayerPlan, ...] | None = None, **others: Any) -> ModelConfig:
    """The plan of a Llama by config.json, but for its `layers` and the `others` of its fields."""
    if "quantization_config" in raw:
        raise ConfigError("quantised checkpoints are not supported: point at the unquantised model")
    heads, bias = raw["num_attention_heads"], bool(raw.get("attention_bias"))
    head_dim = raw.get("head_dim") or raw["hidden_size"] // heads
    layers = layers or (LayerPlan(read_rope(raw)),) * raw["num_hidden_layers"]
    fields: dict[str, Any] = {
        "vocab_size": raw["vocab_size"],
        "context": min([raw["max_position_embeddings"], *map(_reach, layers)]),
        "hidden_size": raw["hidden_size"],
        "intermediate_size": raw["intermediate_size"],
        "num_heads": heads,
        "num_kv_heads": raw.get("num_key_value_heads") or heads,
        "head_dim": head_dim,
        "norm_eps": raw.get("rms_norm_eps", 1e-6),
        "layers": layers,
        "query_scalar": head_dim,
        "qkv_bias": bias,
        "out_bias": bias,
        "mlp_bias": bool(raw.get("mlp_bias")),
        "tied": bool(raw.get("tie_word_embeddings")),
        "activation": read_activation(raw.get("hidden_act", "silu")),
    }
    return ModelConfig(**fields | others)


def read_activation(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise ConfigError(f"hidden_act {name!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def read_rope(raw: Raw) -> RopeConfig:
    """Read `rope_scaling` with `rope_theta` (transformers 4) or `rope_parameters` (5)."""
    parameters = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    return rope_of(parameters, raw, raw.get("rope_theta") or 10000.0)


def rope_of(parameters: Raw, raw: Raw, theta: float) -> RopeConfig:
    """Read one set of rotary parameters of a config.json; `theta` is the base frequency where they have none."""
    rope_type = parameters.get("rope_type") or parameters.get("type") or "default"
    rope_type = "longrope" if rope_type == "su" else rope_type  # its first name
    if rope_type not in ROPE_TYPES:
        raise ConfigError(f"rotary scaling {rope_type!r} is not supported; known: {', '.join(ROPE_TYPES)}")
    if (parameters.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0) != 1.0:
        raise ConfigError("partial_rotary_factor must be 1: every dimension of a head is rotated")
    context = raw["max_position_embeddings"]
    original = parameters.get("original_max_position_embeddings")
    rope = RopeConfig(
        theta=parameters.get("rope_theta") or theta,
        type=rope_type,
        factor=parameters.get("factor") or 1.0,
        low_freq_factor=parameters.get("low_freq_factor", 1.0),
        high_freq_factor=parameters.get("high_freq_factor", 4.0),
        original_context=raw.get("original_max_position_embeddings") or original or context,
    )
    return _longrope(rope, parameters, context) if rope_type == "longrope" else rope


def _longrope(rope: RopeConfig, parameters: Raw, context: int) -> RopeConfig:
    """LongRoPE within the original context, where its short factors hold; beyond, all keys would have to be others."""
    factor = parameters.get("factor") or context / rope.original_context
    magnitude = parameters.get("attention_factor") or (
        math.sqrt(1 + math.log(factor) / math.log(rope.original_context)) if factor > 1 else 1.0
    )
    return replace(rope, divisors=tuple(parameters["short_factor"]), magnitude=magnitude)


def _reach(layer: LayerPlan) -> float:
    """The tokens up to which the rotary embedding of a layer is exact.

    Dynamic scaling does nothing up to `max_position_embeddings`.
    """
    return layer.rope.original_context if layer.rope.type == "longrope" else math.inf


def up_to_window(raw: Raw) -> int:
    """The longest session in which a sliding window hides nothing: what it computes is then the plain model."""
    context: int = raw["max_position_embeddings"]
    return min(context, raw.get("sliding_window") or context)
