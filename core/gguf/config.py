"""The config.json of a GGUF file's model, as `core.model.config` and transformers read it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from core.errors import ConfigError, UnsupportedArchitecture
from core.gguf.reading import GgufFile
from core.model.architectures import ARCHITECTURES

ROPE_FACTORS = "rope_freqs.weight"
_ARCHITECTURES = {each.gguf: each.name for each in ARCHITECTURES.values() if each.gguf is not None}
_LONGEST = 2**24  # tokens of a context: so far float32 numbers their places exactly
# What Llama 3.1 to 3.3 have; a GGUF file holds only the factors that follow from it.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def model_config(file: GgufFile) -> dict[str, Any]:
    """The fields of config.json. Raises `UnsupportedArchitecture`, or `ConfigError` for a variant of a known one."""
    if file.architecture not in _ARCHITECTURES:
        names = ", ".join(_ARCHITECTURES)
        raise UnsupportedArchitecture(f"{file.path}: a GGUF file of {file.architecture!r}; known: {names}")
    hidden, context = file.count("embedding_length"), file.count("context_length", limit=_LONGEST)
    heads, kv_heads, head_dim = _heads(file, hidden)
    return {
        "architectures": [_ARCHITECTURES[file.architecture]],
        "model_type": file.architecture,
        "vocab_size": _rows(file, "token_embd.weight"),
        "max_position_embeddings": min(context, file.count("attention.sliding_window", context)),
        "hidden_size": hidden,
        "intermediate_size": file.count("feed_forward_length"),
        "num_hidden_layers": file.count("block_count", limit=len(file.tensors)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": file.positive("attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(file, head_dim),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": False,  # Qwen2 has its biases whatever this says
        "mlp_bias": False,
    }


def _rows(file: GgufFile, name: str) -> int:
    if name not in file.tensors:
        raise ConfigError(f"{file.path}: no tensor {name!r}; download the file again, or use another")
    shape = file.tensors[name].shape.tolist()
    if len(shape) != 2:
        raise ConfigError(f"{file.path}: {name} is {shape}, and must have two dimensions")
    return int(shape[1])


def _heads(file: GgufFile, hidden: int) -> tuple[int, int, int]:
    """The numbers of heads of the queries and of the keys, and the width of a head."""
    key, width = "attention.head_count", "attention.key_length"
    heads = file.count(key)
    kv_heads = file.count("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise file.wrong(file.of_model(key), f"must be a multiple of {kv_heads}, that of the keys")
    if hidden % heads and file.get(file.of_model(width), int) is None:
        raise file.wrong(file.of_model(key), f"must divide {hidden}, the width of the model")
    head_dim = file.count(width, hidden // heads)
    if head_dim % 2:
        raise ConfigError(f"{file.path}: a head is {head_dim} wide, which must be even to be rotated")
    for width in ("attention.value_length", "rope.dimension_count"):
        if file.count(width, head_dim) != head_dim:
            raise ConfigError(f"{file.path}: {file.of_model(width)} must be {head_dim}, the width of a head")
    return heads, kv_heads, head_dim


def _rope(file: GgufFile, head_dim: int) -> dict[str, Any]:
    theta = file.positive("rope.freq_base", 10000.0)
    scaling = file.get(file.of_model("rope.scaling.type"), str) or "none"
    if ROPE_FACTORS in file.tensors:
        return {"rope_type": "llama3", "rope_theta": theta} | _llama3_scaling(file, theta, head_dim)
    if scaling == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if scaling != "linear":
        raise ConfigError(f"{file.path}: rotary scaling {scaling!r} is not supported; known: none, linear, llama3")
    return {"rope_type": "linear", "rope_theta": theta, "factor": file.positive("rope.scaling.factor")}


def _llama3_scaling(file: GgufFile, theta: float, head_dim: int) -> dict[str, Any]:
    """The parameters of Llama 3's scaling, if the file's divisors of the frequencies follow from them."""
    divisors = np.asarray(file.tensors[ROPE_FACTORS].data, np.float32)
    if divisors.shape == (head_dim // 2,) and divisors.min() > 0:
        scaling = _LLAMA3 | {"factor": float(divisors.max())}
        expected = [_llama3_divisor(theta ** (2 * i / head_dim), scaling) for i in range(head_dim // 2)]
        if np.allclose(divisors, expected, rtol=1e-4):
            return scaling
    raise ConfigError(f"{file.path}: {ROPE_FACTORS} is not the rotary scaling of Llama 3, the only one known")


def _llama3_divisor(period: float, scaling: dict[str, Any]) -> float:
    """What a frequency is divided by: 1 if its wavelength is short, the factor if long, between them smoothly."""
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    turns = scaling["original_max_position_embeddings"] / (2 * math.pi * period)
    smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
    return float(1 / ((1 - smooth) / factor + smooth))
