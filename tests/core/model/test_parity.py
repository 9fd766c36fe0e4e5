"""Logits against transformers, which is the oracle, in fp32 to 1e-4."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from core.family import DRAFT_DIR, TARGET_DIR
from core.model.causal_lm import load_model
from core.model.config import ModelConfig
from core.model.decoder import DECODERS
from tests.core.model.random_models import feed, fresh, random_tokens, save_model

LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.5, 2.0, 3.0, 4.0, 5.0],
    "long_factor": [9.0] * 8,
}
BY_LAYER = {"sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}, "full_attention": LINEAR}
GEMMA3: dict[str, object] = {
    "sliding_window": 40,
    "head_dim": 24,
    "query_pre_attn_scalar": 20,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
}
PHI3: dict[str, object] = {"pad_token_id": 0, "eos_token_id": 1}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("llama", {}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama, every head its own keys": ("llama", {"num_key_value_heads": 4}),
    "llama, one head for all keys": ("llama", {"num_key_value_heads": 1}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, heads wider than hidden / heads": ("llama", {"head_dim": 24}),
    "llama, linear rotary scaling": ("llama", {"rope_parameters": LINEAR}),
    "llama, llama3 rotary scaling": ("llama", {"rope_parameters": LLAMA3}),
    "llama, dynamic rotary scaling": ("llama", {"rope_parameters": DYNAMIC}),
    "llama, another base and epsilon": ("llama", {"rope_theta": 1e6, "rms_norm_eps": 1e-3}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3 with biases": ("qwen3", {"head_dim": 32, "attention_bias": True}),
    "gemma3": ("gemma3_text", GEMMA3),
    "gemma3, a window of more than a page": ("gemma3_text", GEMMA3 | {"sliding_window": 70}),
    "gemma3, a window of one token": ("gemma3_text", GEMMA3 | {"sliding_window": 1}),
    "gemma3, linear scaling where all is seen": ("gemma3_text", GEMMA3 | {"rope_parameters": BY_LAYER}),
    "gemma3 with biases, untied": ("gemma3_text", GEMMA3 | {"attention_bias": True, "tie_word_embeddings": False}),
    "phi3": ("phi3", PHI3),
    "phi3, a window": ("phi3", PHI3 | {"sliding_window": 40}),
    "phi3, tied, every head its own keys": ("phi3", PHI3 | {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "phi3, longrope": ("phi3", PHI3 | {"rope_parameters": LONGROPE, "original_max_position_embeddings": 192}),
}


def check_equal(directory: Path, oracle: PreTrainedModel, length: int = 150) -> None:
    """The first tokens fed at once, the last 20 three at a time from the cache."""
    tokens = random_tokens(length, oracle.config.vocab_size)
    with torch.inference_mode():
        expected = oracle(torch.tensor([tokens])).logits[0]
    assert expected.std() > 0.1
    for decoder in DECODERS:
        model = load_model(directory, dtype=torch.float32, num_pages=8, decoder=decoder)
        torch.testing.assert_close(fresh(model, 0, tokens[:-20]), expected[:-20], atol=1e-4, rtol=0)
        torch.testing.assert_close(feed(model, 0, tokens[-20:], rows=3), expected[-20:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_random_weights(variant: str, tmp_path: Path) -> None:
    model_type, changes = VARIANTS[variant]
    check_equal(tmp_path, save_model(tmp_path, model_type, **changes))


@pytest.mark.parametrize("scaling", [LINEAR, LLAMA3], ids=["linear", "llama3"])
def test_rotary_scaling_written_by_transformers_4(scaling: dict[str, object], tmp_path: Path) -> None:
    oracle = save_model(tmp_path, rope_parameters=scaling)
    config = json.loads((tmp_path / "config.json").read_text())
    old = {key: value for key, value in config.pop("rope_parameters").items() if key != "rope_theta"}
    old["type"] = old.pop("rope_type")
    config |= {"rope_scaling": old, "rope_theta": scaling["rope_theta"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    check_equal(tmp_path, oracle)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [("mistral", {}), ("qwen2", {"use_sliding_window": True, "max_window_layers": 1})],
    ids=["mistral", "qwen2"],
)
def test_a_sliding_window_ends_the_context(model_type: str, changes: dict[str, object], tmp_path: Path) -> None:
    oracle = save_model(tmp_path, model_type, sliding_window=96, **changes)
    assert load_model(tmp_path, dtype=torch.float32, num_pages=1).context == 96
    check_equal(tmp_path, oracle, length=96)


def test_gemma3_written_by_transformers_4(tmp_path: Path) -> None:
    """As hub models have it: the kinds of layers follow from a pattern, and rotary bases are fields of their own."""
    oracle = save_model(tmp_path, "gemma3_text", **GEMMA3 | {"num_hidden_layers": 7, "layer_types": None})
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("layer_types", "rope_parameters", "_sliding_window_pattern", "tie_word_embeddings"):
        del config[name]
    config |= {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": None, "sliding_window_pattern": 6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    check_equal(tmp_path, oracle)


def test_longrope_ends_with_the_original_context(tmp_path: Path) -> None:
    save_model(tmp_path, "phi3", **PHI3, rope_parameters=LONGROPE, original_max_position_embeddings=192)
    assert ModelConfig.load(tmp_path).context == 192


@pytest.mark.parametrize("directory", [TARGET_DIR, DRAFT_DIR], ids=["target", "draft"])
def test_the_shipped_family(directory: Path) -> None:
    """Trained logits reach 25, where fp32 itself strays by some 1e-4: so in parts of the largest, against fp64."""
    model = load_model(directory, dtype=torch.float32, num_pages=8)
    tokens = random_tokens(150, model.vocab_size)
    with torch.inference_mode():
        oracle = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64).eval()
        expected = oracle(torch.tensor([tokens])).logits[0].float()
    scale = expected.abs().max().item()
    torch.testing.assert_close(fresh(model, 0, tokens), expected, atol=1e-4 * scale, rtol=0)


@pytest.mark.parametrize("decoder", DECODERS)
def test_bf16_is_as_near_to_fp32_as_transformers_is(tmp_path: Path, decoder: str) -> None:
    oracle = save_model(tmp_path, num_hidden_layers=4)
    tokens = random_tokens(150, 300)
    with torch.inference_mode():
        exact = oracle(torch.tensor([tokens])).logits[0]
        theirs = oracle.bfloat16()(torch.tensor([tokens])).logits[0].float()
    ours = fresh(load_model(tmp_path, dtype=torch.bfloat16, num_pages=8, decoder=decoder), 0, tokens)
    assert ours.dtype == torch.float32
    assert (ours - exact).square().mean() < 1.2 * (theirs - exact).square().mean()


def test_a_serving_process_loads_neither_transformers_nor_peft_nor_ray() -> None:
    code = "import sys, core.model.causal_lm; sys.exit(bool({'transformers', 'peft', 'ray'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
