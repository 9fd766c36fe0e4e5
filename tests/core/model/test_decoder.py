"""The registry of decoders: which one a model gets, what is said where it lacks something, and its cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.errors import ConfigError, UnsupportedArchitecture
from core.model.causal_lm import load_compiled_model, load_model
from core.model.decoder import AUTO, DECODERS, check_name
from core.model.pages import PageCopy, Span
from serve_app.config import Target
from tests.core.model.random_models import fresh, random_tokens, save_model

TOKENS = random_tokens(150, 300)
CAP = {"final_logit_softcapping": 2.0}


def test_a_configuration_may_write_the_name_of_every_decoder_and_no_other() -> None:
    for name in (AUTO, *DECODERS):
        assert Target(model="family:target", decoder=name).decoder == name
    with pytest.raises(ConfigError, match="decoder: there is none called 'vlm'; write one of auto, compiled, torch"):
        check_name("vlm")


def test_what_a_decoder_lacks_is_said_with_one_that_has_it(tmp_path: Path) -> None:
    save_model(tmp_path, "gemma3_text", **CAP)
    message = "the compiled decoder has no logit softcapping; write decoder: torch"
    with pytest.raises(ConfigError, match=message):
        load_model(tmp_path, dtype=torch.float32, num_pages=1, decoder="compiled")
    with pytest.raises(ConfigError, match=message):
        load_compiled_model(tmp_path, dtype="float32", num_pages=1)


def test_what_no_decoder_has_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path, "gemma3_text", attn_logit_softcapping=50.0)
    for decoder in (AUTO, *DECODERS):
        with pytest.raises(UnsupportedArchitecture, match=r"no attention softcapping.*, nor has another decoder"):
            load_model(tmp_path, dtype=torch.float32, num_pages=1, decoder=decoder)


def test_the_compiled_decoder_is_for_cpus(tmp_path: Path) -> None:
    save_model(tmp_path)
    with pytest.raises(ConfigError, match=r"on meta; write decoder: torch"):
        load_model(tmp_path, dtype=torch.float32, num_pages=1, decoder="compiled", device="meta")


def test_left_to_choose_a_model_gets_one_that_can_compute_it(tmp_path: Path) -> None:
    """Softcapped logits are those of transformers, and a row's bits are its own."""
    oracle = save_model(tmp_path, "gemma3_text", vocab_size=301, **CAP)
    model = load_model(tmp_path, dtype=torch.float32, num_pages=16)
    with torch.inference_mode():
        expected = oracle(torch.tensor([TOKENS])).logits[0]
    logits = fresh(model, 0, TOKENS)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert logits.abs().max() < 2.0
    for rows in (1, 3, 8):
        model.close(0)
        assert torch.equal(fresh(model, 0, TOKENS[:20], rows), logits[:20])


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_owns_its_pages_and_copies_them(tmp_path: Path, name: str) -> None:
    """Sessions and page tables are its caller's: here they are written by hand."""
    save_model(tmp_path)
    decoder = load_model(tmp_path, dtype=torch.float32, num_pages=4, decoder=name)._decoder
    assert (decoder.num_pages, decoder.dtype, decoder.head_ids) == (4, "float32", None)
    assert decoder.device == torch.device("cpu")
    decoder(TOKENS[:70], [Span(0, 0, 0, 70, [2, 0])], [])
    expected = decoder(TOKENS[70:72], [Span(0, 0, 70, 2, [2, 0])], [0, 1])
    decoder.copy_pages([PageCopy(2, 1), PageCopy(0, 3)])
    decoder(TOKENS[80:100], [Span(0, 0, 60, 20, [2, 0])], [])
    assert torch.equal(decoder(TOKENS[70:72], [Span(0, 0, 70, 2, [1, 3])], [0, 1]), expected)
