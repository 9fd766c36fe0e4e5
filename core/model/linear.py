"""The one seam every matrix product goes through: plain, or with the weight laid out for oneDNN beforehand (CPU).

Laid-out weights are 1.3 to 4 times as fast for 4 to 8 rows, and their kernels give a row the same bits whatever
the number of rows. That is checked for every shape when a model is loaded, by comparing bits; a shape that fails
(another processor, another thread count, plain kernels) is computed in tiles of a fixed number of rows instead, so
that the kernel always sees the same shape.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812

MIN_ROWS = 4  # one row may take a matrix-vector kernel, which sums in another order
MAX_ROWS = 256  # longer inputs are cut, so that no row count occurs that was not probed in kind
_TILE_ROWS = 8
_PROBED_ROWS = (*range(MIN_ROWS, 18), 24, 31, 32, 33, 48, 64, 65, 96, 127, 128, 129, 192, 255, 256)


class Linear:
    """`x [rows, in] -> x @ weight.T + bias [rows, out]`, a row's bits independent of the other rows.

    Wants at least `MIN_ROWS` rows. The thread count of torch must not change afterwards.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._weight = _lay_out(weight)
        self._packed = self._weight.is_mkldnn
        self._bias = bias
        self._tiled = weight.device.type == "cpu" and not _row_invariant(
            *weight.shape, weight.dtype, self._packed, torch.get_num_threads()
        )
        self._on_cpu = weight.device.type == "cpu"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._tiled:
            return _by_tiles(x, self._weight, self._bias)
        if self._on_cpu and x.shape[0] > MAX_ROWS:
            return torch.cat([_product(part, self._weight, self._bias) for part in _parts(x)])
        return _product(x, self._weight, self._bias)


def _parts(x: torch.Tensor) -> list[torch.Tensor]:
    """Cut rows into pieces of at most `MAX_ROWS`, none shorter than `MIN_ROWS`."""
    sizes = [MAX_ROWS] * (x.shape[0] // MAX_ROWS)
    rest = x.shape[0] % MAX_ROWS
    if 0 < rest < MIN_ROWS:
        sizes[-1] -= MIN_ROWS
        rest += MIN_ROWS
    return list(torch.split(x, [*sizes, rest] if rest else sizes))


def _lay_out(weight: torch.Tensor) -> torch.Tensor:
    """The weight in oneDNN's own layout where that exists (private operators of torch, used in this file only)."""
    if weight.device.type != "cpu":
        return weight
    try:
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        return packed
    except (AttributeError, RuntimeError):  # torch without the operator, or a processor without the dtype
        return weight


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if weight.is_mkldnn:
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    return F.linear(x, weight, bias)


def _by_tiles(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    rows = x.shape[0]
    padded = F.pad(x, (0, 0, 0, -rows % _TILE_ROWS))
    return torch.cat([_product(tile, weight, bias) for tile in torch.split(padded, _TILE_ROWS)])[:rows]


@cache
def _row_invariant(out_features: int, in_features: int, dtype: torch.dtype, packed: bool, threads: int) -> bool:
    """Whether products of this shape give each row the bits it has in a tile, at every probed row count.

    Each sum's terms cancel, so that what is left is what rounding made of it: a kernel that sums in another order shows
    in nearly every entry, where with plain random numbers it may show in one of thousands, or in none.
    """
    generator = torch.Generator().manual_seed(threads)
    order = torch.randperm(in_features // 2, generator=generator)
    half = torch.randn(out_features, in_features // 2, generator=generator).to(dtype)
    weight = F.pad(torch.cat([half, -half[:, order]], 1), (0, in_features % 2))
    half = torch.randn(MAX_ROWS, in_features // 2, generator=generator).to(dtype)
    x = F.pad(torch.cat([half, half[:, order]], 1), (0, in_features % 2))
    if packed:
        weight = _lay_out(weight)
    wanted = _by_tiles(x, weight, None)
    return all(torch.equal(_product(x[:rows], weight, None), wanted[:rows]) for rows in _PROBED_ROWS)
