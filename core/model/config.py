"""The architectures that can run, and the geometry of a model from its Hugging Face config.json.

A new architecture of the LLaMA family is added to `ARCHITECTURES`, with its switches in `ModelConfig.from_dict`. An
unknown one is refused with the list of known ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ConfigError, UnsupportedArchitecture

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ROPE_TYPES = ("default", "linear", "llama3", "dynamic")


def read_config(directory: Path) -> dict[str, Any]:
    """The fields of a model's `config.json`."""
    try:
        raw: dict[str, Any] = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{directory}: no readable config.json ({error})") from error
    return raw


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: the base frequency, and its scaling for longer contexts."""

    theta: float
    type: str
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 0

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> RopeConfig:
        """Read `rope_scaling` with `rope_theta` (transformers 4) or `rope_parameters` (5)."""
        params = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
        rope_type = params.get("rope_type") or params.get("type") or "default"
        if rope_type not in ROPE_TYPES:
            raise ConfigError(f"rotary scaling {rope_type!r} is not supported; known: {', '.join(ROPE_TYPES)}")
        if (params.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0) != 1.0:
            raise ConfigError("partial_rotary_factor must be 1: every dimension of a head is rotated")
        return cls(
            theta=params.get("rope_theta") or raw.get("rope_theta") or 10000.0,
            type=rope_type,
            factor=params.get("factor", 1.0),
            low_freq_factor=params.get("low_freq_factor", 1.0),
            high_freq_factor=params.get("high_freq_factor", 4.0),
            original_context=params.get("original_max_position_embeddings") or raw["max_position_embeddings"],
        )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The geometry of one model of the LLaMA family."""

    vocab_size: int
    context: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool

    @property
    def layer_weights(self) -> int:
        """The number of weights in the matrices of one layer."""
        heads = 2 * (self.num_heads + self.num_kv_heads)  # queries and outputs, keys and values
        return self.hidden_size * (heads * self.head_dim + 3 * self.intermediate_size)

    @classmethod
    def load(cls, directory: Path) -> ModelConfig:
        """Read `config.json` of a model directory."""
        return cls.from_dict(read_config(directory))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Raises `UnsupportedArchitecture`, or `ConfigError` for an unsupported variant of a known architecture."""
        architecture = _architecture(raw)
        if raw.get("hidden_act", "silu") != "silu":
            raise ConfigError(f"hidden_act {raw['hidden_act']!r} is not supported; known: silu")
        if "quantization_config" in raw:
            raise ConfigError("quantised checkpoints are not supported: point at the unquantised model")
        heads = raw["num_attention_heads"]
        attention_bias = bool(raw.get("attention_bias"))
        return cls(
            vocab_size=raw["vocab_size"],
            context=_context(raw, architecture),
            hidden_size=raw["hidden_size"],
            intermediate_size=raw["intermediate_size"],
            num_layers=raw["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            norm_eps=raw.get("rms_norm_eps", 1e-6),
            rope=RopeConfig.from_dict(raw),
            qkv_bias=attention_bias or architecture == "Qwen2ForCausalLM",
            out_bias=attention_bias,
            mlp_bias=bool(raw.get("mlp_bias")),
            qk_norm=architecture == "Qwen3ForCausalLM",
            tied=bool(raw.get("tie_word_embeddings")),
        )


def _architecture(raw: Mapping[str, Any]) -> str:
    names = [str(name) for name in raw.get("architectures") or []]
    if len(names) != 1 or names[0] not in ARCHITECTURES:
        raise UnsupportedArchitecture(f"{', '.join(names) or 'no architecture'}; known: {', '.join(ARCHITECTURES)}")
    return names[0]


def _context(raw: Mapping[str, Any], architecture: str) -> int:
    """The longest session that full attention serves exactly.

    A layer with a sliding window sees everything while the session fits the window. Dynamic rotary scaling does nothing
    up to `max_position_embeddings`. Within these limits both equal the plain model.
    """
    context: int = raw["max_position_embeddings"]
    slides = architecture == "MistralForCausalLM" or bool(raw.get("use_sliding_window"))
    window: int | None = raw.get("sliding_window")
    return min(context, window) if slides and window else context
