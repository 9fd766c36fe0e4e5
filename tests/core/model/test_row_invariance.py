"""A session's logits are the same bits however its tokens were fed and whoever else was in the pass."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.decoder import DECODERS
from tests.core.model.random_models import feed, fresh, random_tokens, save_model

GEOMETRIES: dict[str, dict[str, object]] = {
    "target": {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 6,
        "vocab_size": 2048,
        "tie_word_embeddings": True,
    },
    "draft": {
        "num_hidden_layers": 1,
        "intermediate_size": 176,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "vocab_size": 2048,
        "tie_word_embeddings": True,
    },
    "wide": {
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "vocab_size": 1000,
    },
    "every head its own keys": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "no width a multiple of a vector": {
        "hidden_size": 60,
        "intermediate_size": 131,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "head_dim": 20,
        "vocab_size": 301,
    },
    "windows of less than a page": {
        "model_type": "gemma3_text",
        "sliding_window": 40,
        "head_dim": 24,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "vocab_size": 301,
    },
    "windows of more than a page": {
        "model_type": "phi3",
        "sliding_window": 75,
        "pad_token_id": 0,
        "eos_token_id": 1,
    },
}
LENGTH = 142
PAGE_EDGES = ((58, 72), (120, LENGTH))  # before and after the second and third page begin


SOON = ("target", "no width a multiple of a vector")  # the geometries of every `make test`


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in SOON else pytest.mark.thorough) for name in GEOMETRIES],
)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path, **{"max_position_embeddings": 1024, **GEOMETRIES[request.param]})
    return path


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(scope="module", params=DECODERS)
def model(request: pytest.FixtureRequest, directory: Path, dtype: torch.dtype) -> CausalLM:
    return load_model(directory, dtype=dtype, num_pages=64, decoder=request.param)


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture
def tokens(model: CausalLM) -> list[int]:
    return random_tokens(LENGTH, model.vocab_size)


@pytest.fixture
def wanted(model: CausalLM, tokens: list[int]) -> Iterator[torch.Tensor]:
    """The logits of a whole prefill, whose session 0 stays open during the test."""
    yield fresh(model, 0, tokens)
    model.close(0)
    assert model.num_used_pages == 0


def test_prefill_in_chunks_of_16(model: CausalLM, tokens: list[int], wanted: torch.Tensor) -> None:
    assert torch.equal(fresh(model, 1, tokens, rows=16), wanted)
    model.close(1)


@pytest.mark.parametrize("rows", range(1, 9))
def test_one_to_eight_rows_across_page_edges(
    model: CausalLM, tokens: list[int], wanted: torch.Tensor, rows: int
) -> None:
    for start, end in PAGE_EDGES:
        model.fork(0, 1)
        model.rollback(1, start)
        assert torch.equal(feed(model, 1, tokens[start:end], rows), wanted[start:end])
        model.close(1)


def test_beside_seven_sessions_of_other_lengths(model: CausalLM, tokens: list[int], wanted: torch.Tensor) -> None:
    check_beside_others(model, tokens, wanted, start=40)


def test_after_rollback_and_feeding_again(model: CausalLM, tokens: list[int], wanted: torch.Tensor) -> None:
    model.fork(0, 1)
    for length in (139, 127, 66, 64, 63, 5):
        model.rollback(1, length)
        feed(model, 1, random_tokens(7, model.vocab_size, seed=length), rows=7)
        model.rollback(1, length)
        assert torch.equal(feed(model, 1, tokens[length:], rows=5), wanted[length:])
    model.close(1)


def test_forks_that_go_apart_and_come_again(model: CausalLM, tokens: list[int], wanted: torch.Tensor) -> None:
    fresh(model, 1, tokens[:100])
    model.fork(1, 2)
    feed(model, 1, random_tokens(40, model.vocab_size, seed=1), rows=40)
    assert torch.equal(feed(model, 2, tokens[100:], rows=3), wanted[100:])
    model.rollback(1, 100)
    assert torch.equal(feed(model, 1, tokens[100:], rows=6), wanted[100:])
    model.close(1)
    model.close(2)


@pytest.mark.parametrize("decoder", DECODERS)
def test_on_two_threads(two_threads: None, tmp_path: Path, decoder: str) -> None:  # noqa: ARG001
    # The whole prefill is more elementwise work than torch leaves uncut, and 1000 is no multiple of a vector.
    save_model(tmp_path, **{**GEOMETRIES["draft"], "intermediate_size": 1000})
    model = load_model(tmp_path, dtype=torch.float32, num_pages=64, decoder=decoder)
    tokens = random_tokens(LENGTH, model.vocab_size)
    wanted = fresh(model, 0, tokens)
    assert torch.equal(fresh(model, 1, tokens, rows=16), wanted)
    model.close(1)
    check_beside_others(model, tokens, wanted, start=110)


def test_a_team_gives_the_bits_of_one_thread(directory: Path, dtype: torch.dtype) -> None:
    def logits(threads: int) -> torch.Tensor:
        torch.set_num_threads(threads)
        try:
            model = load_model(directory, dtype=dtype, num_pages=64, decoder="compiled")
            return fresh(model, 0, random_tokens(LENGTH, model.vocab_size), rows=17)
        finally:
            torch.set_num_threads(1)

    assert torch.equal(logits(2), logits(1))


def check_beside_others(model: CausalLM, tokens: list[int], wanted: torch.Tensor, start: int) -> None:
    """Feed the session 1 to 8 rows a pass, at a random place among seven sessions that do likewise."""
    dice = random.Random(0)
    lengths = {2: 3, 3: 30, 4: 63, 5: 64, 6: 65, 7: 130, 8: 200}
    for session, length in lengths.items():
        fresh(model, session, random_tokens(length, model.vocab_size, seed=session))
    model.fork(0, 1)
    model.rollback(1, start)
    while start < len(tokens):
        rows = tokens[start : start + dice.randint(1, 8)]
        batch = [Rows(other, dice.choices(tokens, k=dice.choice([1, 2, 5, 16])), 1) for other in lengths]
        place = dice.randint(0, len(batch))
        batch.insert(place, Rows(1, rows, len(rows)))
        logits = model.forward(batch)[place : place + len(rows)]
        assert torch.equal(logits, wanted[start : start + len(rows)])
        start += len(rows)
    for session in (1, *lengths):
        model.close(session)
