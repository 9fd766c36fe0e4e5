"""Checkpoints that load, and the errors for those that do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file

from core.errors import ConfigError, UnsupportedArchitecture
from core.model.architectures import ARCHITECTURES
from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.config import ModelConfig
from tests.core.model.random_models import fresh, make_model, random_tokens

TOKENS = random_tokens(30, 300)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("saved")
    make_model().save_pretrained(directory)
    return directory


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def load(path: str | Path) -> CausalLM:
    return load_model(path, dtype=torch.float32, num_pages=2)


def change_config(directory: Path, **changes: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_sharded_weights(saved: Path, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert torch.equal(fresh(load(tmp_path), 0, TOKENS), fresh(load(saved), 0, TOKENS))


def test_weights_from_before_safetensors(saved: Path, copy: Path) -> None:
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    assert torch.equal(fresh(load(copy), 0, TOKENS), fresh(load(saved), 0, TOKENS))


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "intermediate_size", "num_key_value_heads", "head_dim"])
@pytest.mark.parametrize("change", [-1, 1])
def test_weights_of_another_shape_than_the_config_says(copy: Path, key: str, change: int) -> None:
    config = ModelConfig.load(copy)
    value = getattr(config, {"num_key_value_heads": "num_kv_heads"}.get(key, key))
    change_config(copy, head_dim=config.head_dim)
    change_config(copy, **{key: value + change * (2 if key == "head_dim" else 1)})
    with pytest.raises(ConfigError, match=r"but config\.json says"):
        load(copy)


def test_ids_that_the_model_does_not_have(saved: Path) -> None:
    model = load(saved)
    model.open(0)
    for token in (-1, model.vocab_size):
        with pytest.raises(ValueError, match=str(token)):
            model.forward([Rows(0, [1, token], 1)])
    assert model.num_cached(0) == 0


def test_a_hub_id_from_the_hubs_cache(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, commit = tmp_path / "models--someone--llama", "a" * 40
    shutil.copytree(saved, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert torch.equal(fresh(load("someone/llama"), 0, TOKENS), fresh(load(saved), 0, TOKENS))
    with pytest.raises(ConfigError, match="someone/else"):
        load("someone/else")


def test_another_architecture_is_refused_with_the_list(copy: Path) -> None:
    change_config(copy, architectures=["GPT2LMHeadModel"])
    with pytest.raises(UnsupportedArchitecture, match="GPT2LMHeadModel") as refusal:
        load(copy)
    assert all(name in str(refusal.value) for name in ARCHITECTURES)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_act": "gelu"}, "gelu"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "yarn"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"attention_bias": True}, "q_proj.bias"),
    ],
    ids=["activation", "quantised", "yarn", "partial rotation", "missing tensor"],
)
def test_a_variant_that_cannot_be_run_is_refused(copy: Path, changes: dict[str, object], named: str) -> None:
    change_config(copy, **changes)
    with pytest.raises(ConfigError, match=named):
        load(copy)


def test_a_directory_without_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        load(tmp_path)


def test_a_type_that_no_model_computes_with_is_refused(saved: Path) -> None:
    with pytest.raises(ConfigError, match=r"dtype: float16 .* write float32 or bfloat16"):
        load_model(saved, dtype=torch.float16, num_pages=1)


def test_a_truncated_weight_file(copy: Path) -> None:
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        load(copy)
