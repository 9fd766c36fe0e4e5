"""A session that finds its beginning computed by another has, bit for bit, the logits of one that computed it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.model.causal_lm import CausalLM, load_model
from tests.core.model.random_models import feed, fresh, random_tokens, save_model

LENGTH = 200


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path)
    return path


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def model(request: pytest.FixtureRequest, directory: Path) -> CausalLM:
    return load_model(directory, dtype=request.param, num_pages=16)


@pytest.fixture
def tokens(model: CausalLM) -> list[int]:
    return random_tokens(LENGTH, model.vocab_size)


@pytest.mark.parametrize("rows", [1, 16, LENGTH])
@pytest.mark.parametrize("closed", [False, True])
def test_behind_a_recalled_beginning(model: CausalLM, tokens: list[int], closed: bool, rows: int) -> None:
    wanted = fresh(model, 0, tokens)
    fresh(model, 1, tokens, rows=rows)
    model.store_prefix(1, tokens)
    if closed:
        model.close(1)
    model.open(2)
    assert model.lookup_prefix(2, tokens) == 192
    assert torch.equal(feed(model, 2, tokens[192:], 3), wanted[192:])
    model.open(3)
    assert model.lookup_prefix(3, tokens[:129]) == 128
    assert torch.equal(feed(model, 3, tokens[128:], 5), wanted[128:])


def test_behind_a_page_taken_over_from_another(model: CausalLM, tokens: list[int]) -> None:
    wanted = fresh(model, 0, tokens)
    fresh(model, 1, tokens[:140], rows=7)
    for session in (0, 1):
        model.store_prefix(session, tokens[:140])
    assert model.num_used_pages == 2 + 2 + 1
    assert torch.equal(feed(model, 1, tokens[140:], 6), wanted[140:])


def test_a_recalled_beginning_outlives_those_who_go_on_otherwise(model: CausalLM, tokens: list[int]) -> None:
    wanted = fresh(model, 0, tokens)
    model.store_prefix(0, tokens)
    model.rollback(0, 100)
    feed(model, 0, random_tokens(90, model.vocab_size, seed=1), rows=90)
    model.open(1)
    assert model.lookup_prefix(1, tokens) == 192
    assert torch.equal(feed(model, 1, tokens[192:], 8), wanted[192:])
