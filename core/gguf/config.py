"""The config.json of a GGUF file's model, as `core.model.config` and transformers read it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from core.errors import ConfigError, UnsupportedArchitecture
from core.gguf.reading import GgufFile

ROPE_FACTORS = "rope_freqs.weight"
_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
# What Llama 3.1 to 3.3 have; a GGUF file holds only the factors that follow from it.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def model_config(file: GgufFile) -> dict[str, Any]:
    """The fields of config.json. Raises `UnsupportedArchitecture`, or `ConfigError` for a variant of a known one."""
    if file.architecture not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise UnsupportedArchitecture(f"{file.path}: a GGUF file of {file.architecture!r}; known: {known}")
    heads, hidden = file.count("attention.head_count"), file.count("embedding_length")
    head_dim = file.count("attention.key_length", hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if file.count(key, head_dim) != head_dim:
            raise ConfigError(f"{file.path}: {file.architecture}.{key} must be {head_dim}, the width of a head")
    context = file.count("context_length")
    return {
        "architectures": [_ARCHITECTURES[file.architecture]],
        "model_type": file.architecture,
        "vocab_size": _rows(file, "token_embd.weight"),
        "max_position_embeddings": min(context, file.count("attention.sliding_window", context)),
        "hidden_size": hidden,
        "intermediate_size": file.count("feed_forward_length"),
        "num_hidden_layers": file.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.count("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": file.require(f"{file.architecture}.attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(file, head_dim),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": False,  # Qwen2 has its biases whatever this says
        "mlp_bias": False,
    }


def _rows(file: GgufFile, name: str) -> int:
    if name not in file.tensors:
        raise ConfigError(f"{file.path}: no tensor {name!r}; download the file again, or use another")
    return int(file.tensors[name].data.shape[0])


def _rope(file: GgufFile, head_dim: int) -> dict[str, Any]:
    theta = float(file.of_model("rope.freq_base") or 10000.0)
    scaling = file.of_model("rope.scaling.type") or "none"
    if ROPE_FACTORS in file.tensors:
        return {"rope_type": "llama3", "rope_theta": theta} | _llama3_scaling(file, theta, head_dim)
    if scaling == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if scaling != "linear":
        raise ConfigError(f"{file.path}: rotary scaling {scaling!r} is not supported; known: none, linear, llama3")
    factor = float(file.require(f"{file.architecture}.rope.scaling.factor"))
    return {"rope_type": "linear", "rope_theta": theta, "factor": factor}


def _llama3_scaling(file: GgufFile, theta: float, head_dim: int) -> dict[str, Any]:
    """The parameters of Llama 3's scaling, if the file's divisors of the frequencies follow from them."""
    divisors = np.asarray(file.tensors[ROPE_FACTORS].data, np.float32)
    scaling = _LLAMA3 | {"factor": float(divisors.max())}
    expected = [_llama3_divisor(theta ** (2 * i / head_dim), scaling) for i in range(head_dim // 2)]
    if divisors.shape != (len(expected),) or not np.allclose(divisors, expected, rtol=1e-4):
        raise ConfigError(f"{file.path}: {ROPE_FACTORS} is not the rotary scaling of Llama 3, the only one known")
    return scaling


def _llama3_divisor(period: float, scaling: dict[str, Any]) -> float:
    """What a frequency is divided by: 1 if its wavelength is short, the factor if long, between them smoothly."""
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    turns = scaling["original_max_position_embeddings"] / (2 * math.pi * period)
    smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
    return float(1 / ((1 - smooth) / factor + smooth))
