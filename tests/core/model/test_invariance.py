"""The check before a target serves: its bits must not depend on the pass that computes a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.invariance import differing
from tests.core.model.random_models import save_model


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path)
    return path


@pytest.fixture(params=["torch", "compiled"])
def model(request: pytest.FixtureRequest, directory: Path) -> CausalLM:
    return load_model(directory, dtype=torch.bfloat16, num_pages=8, decoder=request.param)


def test_ours_do_not_and_hold_nothing_afterwards(model: CausalLM) -> None:
    assert differing(model) == (0, 160)
    assert model.num_used_pages == 0


def test_one_whose_cache_holds_no_other_session_is_asked_alone(directory: Path) -> None:
    assert differing(load_model(directory, dtype=torch.float32, num_pages=3)) == (0, 160)


@pytest.mark.parametrize(
    ("careless", "positions"),
    [
        (lambda batch: len(batch[-1].tokens) == 5, 20),
        (lambda batch: len(batch[-1].tokens) > 8, 112),
        (lambda batch: len(batch) > 1, 86),
    ],
    ids=["five rows", "many rows", "beside another"],
)
def test_passes_that_give_other_bits_are_found(
    model: CausalLM, monkeypatch: pytest.MonkeyPatch, careless: Callable[[Sequence[Rows]], bool], positions: int
) -> None:
    forward = model.forward

    def otherwise(batch: Sequence[Rows]) -> torch.Tensor:
        logits = forward(batch)
        return logits.nextafter(torch.tensor(torch.inf)) if careless(batch) else logits

    monkeypatch.setattr(model, "forward", otherwise)
    assert differing(model) == (positions, 160)
    assert model.num_used_pages == 0
