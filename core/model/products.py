"""Products of rows with a weight at the speed of memory: for few rows it is read once, from end to end.

A weight is kept in panels of outputs, each one stretch of memory in the order in which its inputs are summed. One is
multiplied with some rows by what the processor has: tiles, with up to 32 (tiles.py), or else vector registers, with up
to 8 (registers.py). A row's bits depend on nothing but the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numba import prange, types
from numba.extending import overload
from numpy.typing import NDArray

from core.model import tiles
from core.model.compiling import Array, in_parallel, inner
from core.model.registers import NATIVE, WIDTH, Fed, add_product
from core.model.rounding import round_pairs

WORDS: type[np.integer[Any]] = np.int32 if tiles.granted() else np.uint32
"""Of two bf16 weights, the former in the lower half: signed are multiplied on tiles, unsigned in vector registers."""
Weight = NDArray[np.int32] | NDArray[np.uint32] | NDArray[np.float32]
"""[panels, steps, WIDTH]: a step is an input in fp32, or two in bf16."""


def pack(weight: torch.Tensor) -> Weight:
    """A weight [outs, ins] in fp32 or bf16, in panels; what it lacks to the end of the last one's last step is 0."""
    outs, ins = weight.shape
    if weight.dtype == torch.float32:
        return _panels(F.pad(weight, (0, 0, 0, -outs % WIDTH)).numpy())
    at_once = 2 * tiles.STEPS if WORDS is np.int32 else 2
    whole = F.pad(weight, (0, -ins % at_once, 0, -outs % WIDTH)).contiguous()
    return _panels(whole.view(torch.int32).numpy().view(WORDS))


def _panels(steps: NDArray[Any]) -> Weight:
    return np.ascontiguousarray(steps.reshape(-1, WIDTH, steps.shape[1]).swapaxes(1, 2))


def _rounded(x: Array, weight: Weight) -> Fed:
    words = np.empty((x.shape[0], weight.shape[1]), np.uint32)
    for row in range(x.shape[0]):
        round_pairs(x[row], words[row])
    return words


def _even(x: Array, weight: Weight) -> Fed:
    """As many inputs as there are weights."""
    if x.shape[1] == 2 * weight.shape[1]:
        return x
    padded = np.zeros((x.shape[0], 2 * weight.shape[1]), np.float32)
    padded[:, :-1] = x
    return padded


def _same(x: Array, weight: Weight) -> Fed:  # noqa: ARG001
    return x


def _in_tiles(x: Array, weight: Weight) -> Fed:
    return tiles.in_tiles(x, weight.shape[1])


def _fed(x: Array, weight: Weight) -> Fed:
    """`x` as a panel's loop reads it: one of the above, chosen when compiled; Python itself never comes here."""
    raise NotImplementedError


@overload(_fed, strict=False)
def _choose_fed(x: Any, weight: Any) -> Callable[..., Any]:  # noqa: ARG001
    if weight.dtype == types.float32:
        return _same
    if weight.dtype == types.int32:
        return _in_tiles
    return _rounded if NATIVE else _even


def _on_tiles(fed: NDArray[Any], weight: NDArray[Any], begun: Array, out: Array) -> None:
    tiles.multiply_tiles(fed, weight, begun, out)


def _in_registers(fed: NDArray[Any], weight: NDArray[Any], begun: Array, out: Array) -> None:
    for row in range(out.shape[0]):
        out[row, :WIDTH] = begun
    add_product(fed, weight, out)


def _multiply_panel(fed: Fed, weight: Weight, begun: Array, out: Array) -> None:
    """`out` [rows, WIDTH] = `begun` [WIDTH] + `fed` @ `weight` [steps, WIDTH], in one of the ways above."""
    raise NotImplementedError


@overload(_multiply_panel, strict=False)
def _choose_way(fed: Any, weight: Any, begun: Any, out: Any) -> Callable[..., Any]:  # noqa: ARG001
    return _on_tiles if weight.dtype == types.int32 else _in_registers


def _multiply(x: Array, weight: Weight, bias: Array, out: Array) -> None:
    fed, (rows, outs) = _fed(x, weight), out.shape
    begun = np.zeros((weight.shape[0], WIDTH), np.float32)
    begun.reshape(-1)[: bias.shape[0]] = bias
    for panel in prange(weight.shape[0]):
        begin, end = panel * WIDTH, min(outs, panel * WIDTH + WIDTH)
        if begin + WIDTH == end:
            _multiply_panel(fed, weight[panel], begun[panel], out[:, begin:])
        else:
            part = np.empty((rows, WIDTH), np.float32)[:, 0:]  # laid out as any part of `out`
            _multiply_panel(fed, weight[panel], begun[panel], part)
            out[:, begin:] = part[:, : end - begin]


_alone, _together = inner(_multiply), in_parallel(_multiply)


@inner
def multiply(x: Array, weight: Weight, bias: Array, out: Array, threads: int | None) -> None:
    """`out` [rows, outs] = `x` [rows, ins] @ `weight`.T + `bias` [outs], which may be empty.

    `threads`: None for one, which is decided when it is compiled: a team takes seconds to compile for.
    """
    if threads is None:
        _alone(x, weight, bias, out)
    else:
        _together(x, weight, bias, out)
