"""Converted files of every architecture and type of numbers, against transformers, which is the oracle, in fp32."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from transformers import AutoModelForCausalLM, GgufConfig, PreTrainedModel

from core.errors import ConfigError
from core.gguf.conversion import converted
from core.model.causal_lm import load_model
from core.model.tensor_views import TensorCheckpoint
from tests.core.gguf.small_files import KINDS, small_model, write
from tests.core.model.random_models import fresh, random_tokens

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
VARIANTS: dict[str, tuple[str, dict[str, object], dict[str, Any]]] = {
    "llama": ("llama", {}, {}),
    "llama tied": ("llama", {"tie_word_embeddings": True}, {}),
    "llama, every head its own keys": ("llama", {"num_key_value_heads": 4}, {"attention__head_count_kv": None}),
    "llama, heads narrower than hidden / heads": ("llama", {"head_dim": 32}, {}),
    "llama, another base and epsilon": ("llama", {"rope_theta": 1e6, "rms_norm_eps": 1e-3}, {}),
    "llama, linear scaling": (
        "llama",
        {"rope_parameters": LINEAR},
        {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0},
    ),
    "qwen2": ("qwen2", {}, {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}, {}),
    "qwen3": ("qwen3", {"head_dim": 64}, {}),
    "qwen3, wide heads, tied": ("qwen3", {"head_dim": 128, "tie_word_embeddings": True}, {}),
}


def check_equal(directory: Path, oracle: PreTrainedModel) -> None:
    tokens = random_tokens(150, oracle.config.vocab_size)
    with torch.inference_mode():
        expected = oracle(torch.tensor([tokens])).logits[0]
    assert expected.std() > 0.1
    model = load_model(directory, dtype=torch.float32, num_pages=4)
    torch.testing.assert_close(fresh(model, 0, tokens), expected, atol=1e-4 * float(expected.abs().max()), rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_architecture(variant: str, tmp_path: Path) -> None:
    model_type, changes, metadata = VARIANTS[variant]
    oracle = small_model(model_type, **changes)
    write(tmp_path / "model.gguf", oracle, **metadata)
    check_equal(converted(tmp_path / "model.gguf"), oracle)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_type_of_numbers(kind: Kind, tmp_path: Path) -> None:
    oracle = small_model(tie_word_embeddings=True)
    write(tmp_path / "model.gguf", oracle, kind)
    directory = converted(tmp_path / "model.gguf")
    check_equal(directory, oracle)
    checkpoint = TensorCheckpoint(directory)
    for name in checkpoint.names():
        assert torch.equal(checkpoint[name].float(), oracle.state_dict()[name]), name  # not one bit is lost


@pytest.mark.parametrize(("kind", "dtype"), [(Kind.F16, "float16"), (Kind.BF16, "bfloat16"), (Kind.Q8_0, "float32")])
def test_halves_stay_halves(kind: Kind, dtype: str, tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", small_model(), kind)
    directory = converted(tmp_path / "model.gguf")
    assert json.loads((directory / "config.json").read_text())["dtype"] == dtype
    assert TensorCheckpoint(directory)["model.layers.0.self_attn.q_proj.weight"].dtype == getattr(torch, dtype)


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_transformers_reads_the_same_numbers_from_the_file(model_type: str, tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", small_model(model_type), Kind.Q8_0)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file="model.gguf",
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    ours = TensorCheckpoint(converted(tmp_path / "model.gguf"))
    assert ours.names()
    for name in ours.names():
        assert torch.equal(ours[name], theirs.state_dict()[name]), name


def test_the_converted_directory_loads_in_transformers(tmp_path: Path) -> None:
    oracle = small_model("qwen3", head_dim=64)
    write(tmp_path / "model.gguf", oracle, Kind.Q4_K)
    loaded = AutoModelForCausalLM.from_pretrained(converted(tmp_path / "model.gguf"))
    tokens = torch.tensor([random_tokens(50, 300)])
    with torch.inference_mode():
        torch.testing.assert_close(loaded(tokens).logits, oracle(tokens).logits)


def llama3_divisors(head_dim: int) -> np.ndarray:
    """The divisors of the frequencies, as llama.cpp's converter computes them."""
    divisors = []
    for frequency in LLAMA3["rope_theta"] ** -(torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim):
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            divisors.append(1.0)
        elif wavelength > 8192:
            divisors.append(8.0)
        else:
            smooth = (8192 / wavelength - 1) / 3
            divisors.append(float(1 / ((1 - smooth) / 8 + smooth)))
    return np.array(divisors, np.float32)


def write_with_divisors(
    path: Path, model: PreTrainedModel, divisors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_tensor = GGUFWriter.add_tensor

    def with_divisors(writer: GGUFWriter, name: str, data: np.ndarray, raw_dtype: Kind) -> None:
        add_tensor(writer, name, data, raw_dtype=raw_dtype)
        if name == "output_norm.weight":
            add_tensor(writer, "rope_freqs.weight", divisors)

    monkeypatch.setattr(GGUFWriter, "add_tensor", with_divisors)
    write(path, model)


def test_the_rotary_scaling_of_llama_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = small_model(rope_parameters=LLAMA3, head_dim=128, max_position_embeddings=16384)
    write_with_divisors(tmp_path / "model.gguf", oracle, llama3_divisors(128), monkeypatch)
    directory = converted(tmp_path / "model.gguf")
    assert json.loads((directory / "config.json").read_text())["rope_parameters"] == LLAMA3
    check_equal(directory, oracle)


@pytest.mark.parametrize("divisors", [np.linspace(1, 8, 32), np.zeros(32), np.full(32, np.nan), np.ones(31)])
def test_other_divisors_of_the_frequencies_are_refused(
    divisors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_with_divisors(tmp_path / "model.gguf", small_model(), divisors.astype(np.float32), monkeypatch)
    with pytest.raises(ConfigError, match=r"rope_freqs\.weight is not the rotary scaling of Llama 3"):
        converted(tmp_path / "model.gguf")
