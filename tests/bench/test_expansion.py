"""The larger model says what the small one says: logits against transformers, every size grown alone and together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.bench.expansion import Geometry, expand

SMALL = Geometry(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn=96)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=101,
        hidden_size=SMALL.hidden,
        num_hidden_layers=SMALL.layers,
        num_attention_heads=SMALL.heads,
        num_key_value_heads=SMALL.kv_heads,
        head_dim=SMALL.head_dim,
        intermediate_size=SMALL.ffn,
        tie_word_embeddings=request.param,
        initializer_range=0.1,
        rms_norm_eps=1e-3,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5)
    directory = tmp_path_factory.mktemp("small")
    model.save_pretrained(directory)
    return directory


def logits(directory: Path) -> torch.Tensor:
    tokens = torch.randint(0, 101, (3, 40), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        result: torch.Tensor = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)(tokens).logits
    return result


@pytest.mark.parametrize(
    "larger",
    [
        Geometry(160, 2, 4, 2, 16, 96),
        Geometry(64, 5, 4, 2, 16, 96),
        Geometry(64, 2, 16, 4, 16, 96),
        Geometry(64, 2, 4, 4, 16, 96),
        Geometry(64, 2, 8, 2, 16, 96),
        Geometry(64, 2, 4, 2, 64, 96),
        Geometry(64, 2, 4, 2, 16, 250),
        Geometry(96, 4, 6, 6, 32, 200),
    ],
    ids=["hidden", "layers", "heads", "all-heads-own-keys", "more-queries-a-key", "head_dim", "ffn", "all"],
)
def test_logits_stay_the_same(source: Path, larger: Geometry, tmp_path: Path) -> None:
    expanded = expand(source, tmp_path / "large", larger, torch.float32)
    torch.testing.assert_close(logits(expanded), logits(source), rtol=1e-5, atol=1e-5)
    assert Geometry.of(LlamaConfig.from_pretrained(expanded)) == larger


@pytest.mark.parametrize(
    ("larger", "named"),
    [
        (Geometry(32, 2, 4, 2, 16, 96), "hidden"),
        (Geometry(64, 1, 4, 2, 16, 96), "layers"),
        (Geometry(64, 2, 4, 2, 24, 96), "head_dim"),
        (Geometry(64, 2, 4, 3, 16, 96), "heads"),
    ],
)
def test_a_geometry_that_does_not_fit_is_refused(source: Path, larger: Geometry, named: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=named):
        expand(source, tmp_path / "large", larger)
