"""Architectures and weights that our own decoders refuse: logits of transformers, in whatever pass they come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.errors import TaskSpecError
from core.model.causal_lm import load_model
from core.model.invariance import differing
from tests.core.model.random_models import feed, fresh, random_tokens, save_model
from tests.vllm.answers import answers
from tests.vllm.models import SIZES, in_vllm

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
ARCHITECTURES: dict[str, tuple[str, dict[str, object]]] = {
    "a mixture of experts": ("mixtral", EXPERTS),
    "softcapped, with windows": ("gemma2", {"sliding_window": 40, "head_dim": 32, "query_pre_attn_scalar": 32}),
    "layer norms, heads partly rotated": ("phi", {"partial_rotary_factor": 0.5}),
    "windows in every layer": ("starcoder2", {"sliding_window": 40}),
}
LENGTH = 150


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_serves_what_ours_refuses(tmp_path: Path, name: str) -> None:
    architecture, changes = ARCHITECTURES[name]
    oracle = save_model(tmp_path, architecture, **SIZES, **changes)
    with pytest.raises(TaskSpecError):
        load_model(tmp_path, dtype=torch.float32, num_pages=8)
    tokens = random_tokens(LENGTH, 304)
    with torch.inference_mode():
        expected = oracle(torch.tensor([tokens])).logits[0]
    assert expected.std() > 0.1
    model = in_vllm(tmp_path)  # from here on classes of transformers may be vLLM's
    assert differing(model).differing == 0
    logits = torch.cat([fresh(model, 0, tokens[:-20]), feed(model, 0, tokens[-20:], 3)])
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)
    model.close(0)
    plain = answers(model)
    assert answers(model, right=plain) == answers(model, wrong=True) == plain


def test_serves_quantised_weights(tmp_path: Path) -> None:
    """Eight bits for weights, by output, and for activations, by token."""
    oracle = save_model(tmp_path, **SIZES)
    _quantise(tmp_path)
    with pytest.raises(TaskSpecError, match="quantised"):
        load_model(tmp_path, dtype=torch.float32, num_pages=8)
    tokens = random_tokens(LENGTH, 304)
    with torch.inference_mode():
        expected = oracle(torch.tensor([tokens])).logits[0]
    model = in_vllm(tmp_path)
    assert differing(model).differing == 0
    logits = fresh(model, 0, tokens)
    model.close(0)
    assert not torch.allclose(logits, expected, atol=1e-3)  # the weights are others
    assert torch.corrcoef(torch.stack([logits.flatten(), expected.flatten()]))[0, 1] > 0.99
    plain = answers(model)
    assert answers(model, right=plain) == answers(model, wrong=True) == plain


def _quantise(directory: Path) -> None:
    """Round the layers' matrices in place, as compressed-tensors stores them."""
    file = directory / "model.safetensors"
    tensors = load_file(file)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight = tensors[name]
        scale = weight.abs().amax(1, keepdim=True) / 127
        tensors[name] = (weight / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale
    save_file(tensors, file, {"format": "pt"})
    eight_bits = {"num_bits": 8, "type": "int", "symmetric": True}
    scheme = {
        "targets": ["Linear"],
        "weights": {**eight_bits, "strategy": "channel", "dynamic": False},
        "input_activations": {**eight_bits, "strategy": "token", "dynamic": True},
    }
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {"all": scheme},
        "ignore": ["lm_head"],
    }
    (directory / "config.json").write_text(json.dumps(config))
