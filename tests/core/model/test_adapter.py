"""A merged adapter against peft, which is the oracle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from core.errors import ConfigError
from core.model.causal_lm import load_model
from tests.core.model.random_models import fresh, random_tokens, save_model

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EVERYTHING = [*LAYERS, "lm_head"]
TOKENS = random_tokens(100, 300)

pytestmark = [
    # peft warns that a tied lm_head is changed apart from the embedding, which is what is meant.
    pytest.mark.filterwarnings("ignore:.*tie.*"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
]


def save_adapter(
    model: Path, adapter: Path, *, tied: bool = False, whole_head: bool = False, **options: object
) -> torch.Tensor:
    """Save model and a random adapter of it; peft's logits for TOKENS.

    `whole_head`: the lm_head's own weight goes into the adapter's file too, as peft does by default.
    """
    base = save_model(model, tie_word_embeddings=tied)
    tuned = get_peft_model(base, LoraConfig(**{"r": 4, "lora_alpha": 12, "target_modules": EVERYTHING, **options}))
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    tuned.save_pretrained(adapter, save_embedding_layers=whole_head)
    with torch.inference_mode():
        logits: torch.Tensor = tuned.eval()(torch.tensor([TOKENS])).logits[0]
    return logits


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied": True},
        {"tied": True, "whole_head": True},
        {"target_modules": ["q_proj", "v_proj"]},
        {"use_rslora": True},
        {"rank_pattern": {"down_proj": 8}, "alpha_pattern": {"layers.1.self_attn.q_proj": 3, "o_proj": 40}},
    ],
    ids=[
        "every layer",
        "tied",
        "tied, with the whole head",
        "two layers",
        "rank stabilised",
        "ranks and alphas by layer",
    ],
)
def test_merged_logits_equal_pefts(tmp_path: Path, options: dict[str, object]) -> None:
    expected = save_adapter(tmp_path / "model", tmp_path / "adapter", **options)
    plain = load_model(tmp_path / "model", dtype=torch.float32, num_pages=2)
    merged = load_model(tmp_path / "model", dtype=torch.float32, num_pages=2, adapter=tmp_path / "adapter")
    torch.testing.assert_close(fresh(merged, 0, TOKENS), expected, atol=1e-4, rtol=0)
    assert (fresh(plain, 0, TOKENS) - expected).abs().max() > 0.1


def test_merging_in_bf16_rounds_once(tmp_path: Path) -> None:
    save_adapter(tmp_path / "model", tmp_path / "adapter")
    merge: Callable[[torch.dtype], torch.Tensor] = lambda dtype: fresh(  # noqa: E731
        load_model(tmp_path / "model", dtype=dtype, num_pages=2, adapter=tmp_path / "adapter"), 0, TOKENS
    )
    plain = fresh(load_model(tmp_path / "model", dtype=torch.bfloat16, num_pages=2), 0, TOKENS)
    exact = merge(torch.float32)
    assert (merge(torch.bfloat16) - exact).abs().mean() < 0.1 * (plain - exact).abs().mean()


@pytest.mark.parametrize(
    ("key", "value"),
    [("use_dora", True), ("modules_to_save", ["lm_head"]), ("bias", "all"), ("peft_type", "IA3")],
)
def test_what_cannot_be_merged_is_refused_by_name(tmp_path: Path, key: str, value: object) -> None:
    save_adapter(tmp_path / "model", tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ConfigError, match=key):
        load_model(tmp_path / "model", dtype=torch.float32, num_pages=2, adapter=tmp_path / "adapter")


@pytest.mark.parametrize(
    ("other", "named"),
    [({"num_hidden_layers": 1}, r"layers\.1\.mlp"), ({"intermediate_size": 128}, "mlp.*128, 64")],
    ids=["shallower", "narrower"],
)
def test_an_adapter_of_another_model_is_refused(tmp_path: Path, other: dict[str, object], named: str) -> None:
    save_adapter(tmp_path / "model", tmp_path / "adapter")
    save_model(tmp_path / "other", **other)
    with pytest.raises(ConfigError, match=named):
        load_model(tmp_path / "other", dtype=torch.float32, num_pages=2, adapter=tmp_path / "adapter")
