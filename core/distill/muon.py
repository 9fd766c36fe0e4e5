"""Muon, the optimizer of matrices (https://kellerjordan.github.io/posts/muon), in a format that the machine has.

torch's own makes every update orthogonal in bfloat16. CPUs that have to emulate that format take 10 to 15 times as
long for it as in float32, and longer than for the rest of a training step (Zen 1, a draft of SmolLM2: 52 s and 4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


def has_bfloat16(device: torch.device) -> bool:
    """True if matrix products in bfloat16 are no slower there than in float32; all GPUs that we know have them."""
    return device.type != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def muon(matrices: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """The one for matrices on their device, at least one, without weight decay."""
    kind = torch.optim.Muon if has_bfloat16(matrices[0].device) else Float32Muon
    return kind(matrices, weight_decay=0.0)


class Float32Muon(torch.optim.Muon):
    """The same steps, but for rounding, and the same state."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Do one step; there is no closure."""
        assert closure is None
        for group in self.param_groups:
            momentum, decay = group["momentum"], 1 - group["lr"] * group["weight_decay"]
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(matrix)
                mean = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
                update = matrix.grad.lerp(mean, momentum) if group["nesterov"] else mean
                update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
                tallness = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(decay).add_(update, alpha=-group["lr"] * tallness)


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
