"""Muon, the optimizer of matrices (https://kellerjordan.github.io/posts/muon), in a format that the machine has.

torch's own makes every update orthogonal in bfloat16. CPUs that have to emulate that format take 10 to 15 times as
long for it as in float32. For the matrices of SmolLM2's draft that is 52 s a step on Zen 1, where all else takes 4 s.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

_BFLOAT16 = ("avx512_bf16", "bf16")  # as torch calls the instructions of x86 and of Arm


def has_bfloat16(device: torch.device) -> bool:
    """False on a CPU that computes products in bfloat16 no quicker than in float32."""
    return device.type != "cpu" or any(torch.cpu.get_capabilities().get(name) for name in _BFLOAT16)


def muon(matrices: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """The one for matrices on their device, at least one, without weight decay."""
    if has_bfloat16(matrices[0].device):
        return torch.optim.Muon(matrices, weight_decay=0.0)
    return Float32Muon(matrices)


class Float32Muon(torch.optim.Muon):
    """The steps of `torch.optim.Muon(matrices, weight_decay=0.0)` but for rounding, and its state."""

    def __init__(self, matrices: Sequence[nn.Parameter]) -> None:
        super().__init__(matrices, weight_decay=0.0)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Do one step, with the `lr` of each group."""
        for group in self.param_groups:
            momentum, coefficients = group["momentum"], group["ns_coefficients"]
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(matrix)
                mean = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
                update = _orthogonal(matrix.grad.lerp(mean, momentum), coefficients, group["ns_steps"], group["eps"])
                tallness = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.add_(update, alpha=-group["lr"] * tallness)


def _orthogonal(matrix: torch.Tensor, coefficients: Sequence[float], steps: int, eps: float) -> torch.Tensor:
    """Nearly the orthogonal matrix nearest to this one, [m, n], by Newton-Schulz steps of fifth order."""
    linear, cubic, quintic = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if tall else matrix
    wide = wide / wide.norm().clamp(min=eps)
    for _ in range(steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=cubic, alpha=quintic), wide, beta=linear)
    return wide.T if tall else wide
