"""Muon in float32: torch's own steps but for rounding, and its state."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core.distill.muon import Float32Muon, _orthogonal, has_bfloat16, muon

SHAPES = ((48, 48), (32, 80), (80, 32), (1, 16))
RATES = (0.5, 0.2, 0.1)


def matrices() -> list[nn.Parameter]:
    random = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(*shape, generator=random)) for shape in SHAPES]


def torchs_own() -> torch.optim.Muon:
    return torch.optim.Muon(matrices(), weight_decay=0.0)


def step(optimizer: torch.optim.Optimizer, number: int) -> None:
    """One with gradients and a rate of its own."""
    random, [group] = torch.Generator().manual_seed(number), optimizer.param_groups
    group["lr"] = RATES[number]
    for parameter in group["params"]:
        parameter.grad = torch.randn(parameter.shape, generator=random)
    optimizer.step()


def moved(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """How far the parameters are from where they began."""
    pairs = zip(optimizer.param_groups[0]["params"], matrices(), strict=True)
    return torch.cat([(now - begun).flatten() for now, begun in pairs]).detach()


def assert_alike(ours: torch.optim.Optimizer, theirs: torch.optim.Optimizer) -> None:
    way = moved(theirs)
    assert way.norm() > 1.0
    assert (moved(ours) - way).norm() < 0.03 * way.norm()  # bfloat16 has 8 bits


def test_its_steps_are_those_of_torch_but_for_rounding() -> None:
    ours, theirs = Float32Muon(matrices()), torchs_own()
    for number in range(len(RATES)):
        step(ours, number)
        step(theirs, number)
        assert_alike(ours, theirs)


@pytest.mark.parametrize("began_here", [True, False])
def test_a_run_that_began_elsewhere_goes_on(began_here: bool) -> None:
    whole, kinds = torchs_own(), (lambda: Float32Muon(matrices()), torchs_own)
    first, second = (kind() for kind in (kinds if began_here else kinds[::-1]))
    for number in range(2):
        step(first, number)
        step(whole, number)
    second.load_state_dict(first.state_dict())
    for now, before in zip(second.param_groups[0]["params"], first.param_groups[0]["params"], strict=True):
        now.data.copy_(before.data)
    step(second, 2)
    step(whole, 2)
    assert_alike(second, whole)


def test_a_matrix_without_gradient_stays() -> None:
    [still, other, *_] = parameters = matrices()
    before = still.detach().clone()
    other.grad = torch.ones_like(other)
    Float32Muon(parameters).step()
    assert torch.equal(still, before)


def test_a_gradient_of_zeros_moves_nothing() -> None:
    [matrix, *_] = parameters = matrices()
    before = matrix.detach().clone()
    matrix.grad = torch.zeros_like(matrix)
    Float32Muon(parameters).step()
    assert torch.equal(matrix, before)


def test_it_computes_in_float32() -> None:
    """In bfloat16 it would be 100 times as far from float64."""
    [single, double] = ([matrix.to(kind) for matrix in matrices()] for kind in (torch.float32, torch.float64))
    for one, other in zip(single, double, strict=True):
        exact = _orthogonal(other, (3.4445, -4.7750, 2.0315), 5, 1e-7)
        assert (_orthogonal(one, (3.4445, -4.7750, 2.0315), 5, 1e-7) - exact).norm() < 1e-4 * exact.norm()


def test_the_format_is_what_the_processor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in (("avx512_bf16", torch.optim.Muon), ("bf16", torch.optim.Muon), ("avx512_f", Float32Muon)):
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda name=name: {"avx512_bf16": False} | {name: True})
        assert type(muon(matrices())) is kind
    assert has_bfloat16(torch.device("cuda"))
