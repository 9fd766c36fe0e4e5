"""`ModelConfig`, the plan of one model: its geometry and its layers, which loading and every decoder read.

`core.model.architectures` makes it from a Hugging Face config.json. No other room knows an architecture by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.errors import ConfigError

Activation = Literal["silu", "gelu_tanh"]
"""What the gate of an MLP goes through."""


def read_config(directory: Path) -> dict[str, Any]:
    """The fields of a model's `config.json`."""
    try:
        raw: dict[str, Any] = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{directory}: no readable config.json ({error})") from error
    return raw


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: the base frequency, and its scaling for longer contexts.

    `divisors` divide the frequencies one by one, unless there are none; `magnitude` multiplies cosines and sines.
    """

    theta: float
    type: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 0
    divisors: tuple[float, ...] = ()
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """What one layer may have otherwise than the next: its rotary embedding, and how far back it sees.

    A token of a layer with a `window` attends over so many tokens, itself included; without one over all before it.
    """

    rope: RopeConfig
    window: int | None = None


@dataclass(frozen=True, slots=True)
class WeightNames:
    """The modules of a layer in the checkpoint, below `model.layers.N`.

    `qkv` and `gate_up` are the modules whose rows, one below the other, are the stacked matrix: several, or one that is
    stored stacked. `attention_out_norm` and `mlp_out_norm` norm what attention and MLP add; None where nothing does.
    """

    norm: str = "input_layernorm"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"
    out: str = "self_attn.o_proj"
    attention_out_norm: str | None = None
    mlp_norm: str = "post_attention_layernorm"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    mlp_out_norm: str | None = None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The plan of a decoder-only transformer with RMS norms, rotary attention and a gated MLP.

    `norm_offset` is added to the weight of every norm. Attention scores are divided by the root of `query_scalar`.
    A softcap `c` replaces a logit or score `x` by `c * tanh(x / c)`.
    """

    vocab_size: int
    context: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    layers: tuple[LayerPlan, ...]
    query_scalar: float
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False
    activation: Activation = "silu"
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    logit_softcap: float | None = None
    attention_softcap: float | None = None
    names: WeightNames = WeightNames()

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def layer_weights(self) -> int:
        """The number of weights in the matrices of one layer."""
        heads = 2 * (self.num_heads + self.num_kv_heads)  # queries and outputs, keys and values
        return self.hidden_size * (heads * self.head_dim + 3 * self.intermediate_size)

    @property
    def features(self) -> frozenset[str]:
        """What a decoder must have beside what Llama needs, by the names that errors use."""
        needs = {
            f"the activation {self.activation}": self.activation != "silu",
            "sliding windows": any(layer.window is not None for layer in self.layers),
            "rotary embeddings by layer": len({layer.rope for layer in self.layers}) > 1,
            "norms behind attention and MLP": self.names.attention_out_norm or self.names.mlp_out_norm,
            "logit softcapping": self.logit_softcap,
            "attention softcapping": self.attention_softcap,
        }
        return frozenset(name for name, needed in needs.items() if needed)

    @classmethod
    def load(cls, directory: Path) -> ModelConfig:
        """Read `config.json` of a model directory."""
        return cls.from_dict(read_config(directory))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Raises `UnsupportedArchitecture`, or `ConfigError` for an unsupported variant of a known architecture."""
        from core.model.architectures import plan  # not above: architectures are written with these classes

        return plan(raw)
