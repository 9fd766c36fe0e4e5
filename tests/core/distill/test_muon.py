"""Muon in float32: torch's own steps but for rounding, and its state."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core.distill.muon import Float32Muon, has_bfloat16, muon

SHAPES = ((48, 48), (32, 80), (80, 32), (1, 16))


def matrices() -> list[nn.Parameter]:
    random = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(*shape, generator=random)) for shape in SHAPES]


def step(optimizer: torch.optim.Optimizer, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.randn(parameter.shape, generator=random)
    optimizer.step()


@pytest.mark.parametrize("settings", [{}, {"nesterov": False}, {"weight_decay": 0.0, "momentum": 0.5, "ns_steps": 3}])
def test_its_steps_are_those_of_torch_but_for_rounding(settings: dict[str, float]) -> None:
    ours, theirs, first = matrices(), matrices(), matrices()
    mine, torchs = Float32Muon(ours, lr=0.5, **settings), torch.optim.Muon(theirs, lr=0.5, **settings)
    for seed in range(3):
        step(mine, seed)
        step(torchs, seed)
    for our, their, begun in zip(ours, theirs, first, strict=True):
        way = (their - begun).norm()
        assert way > 0.1
        assert (our - their).norm() < 0.02 * way  # bfloat16 has 8 bits


def test_a_run_goes_on_from_the_state_of_either() -> None:
    torchs, mine = torch.optim.Muon(matrices(), lr=0.1), Float32Muon(matrices(), lr=0.1)
    step(torchs, 0)
    step(mine, 0)
    state = torchs.state_dict()
    assert state.keys() == mine.state_dict().keys()
    mine.load_state_dict(state)
    step(mine, 1)
    torchs.load_state_dict(mine.state_dict())


def test_a_matrix_without_gradient_stays() -> None:
    [still, moved, *_] = parameters = matrices()
    before = still.detach().clone()
    optimizer = Float32Muon(parameters, lr=0.1)
    moved.grad = torch.ones_like(moved)
    optimizer.step()
    assert torch.equal(still, before)


def test_the_format_is_chosen_by_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for here, kind in ((True, torch.optim.Muon), (False, Float32Muon)):
        monkeypatch.setattr("core.distill.muon.has_bfloat16", lambda _, here=here: here)
        assert type(muon(matrices())) is kind
    assert has_bfloat16(torch.device("cuda"))
