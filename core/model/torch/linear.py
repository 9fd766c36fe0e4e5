"""Every matrix product of torch: `Linear` computes each row with the same bits, whatever other rows share the product.

A library picks its kernel by the number of rows, and another kernel may sum in another order, which changes bits. So
when a model is loaded, each shape is probed: which row counts give every row the bits that it has in a reference tile?
The answer depends on the processor and the thread count. Inputs are then cut and padded to these row counts, and no
other count ever reaches a kernel. On GPUs this is done only for exact numerics.

On a CPU a product of few rows waits for memory, so oneDNN lays the weight out beforehand. Small weights use the plain
kernel, whose calls cost less.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812

# Rows of the reference tile, which defines a row's bits. On a GPU 64 rows take as long as one: reading the weight.
_CPU_TILE_ROWS, _GPU_TILE_ROWS = 8, 64
_PROBED_ROWS = (*range(1, 41), 48, 56, *range(64, 129, 16), 160, 192, 224, 256)
_UNPROBED = range(4, sys.maxsize)  # a few rows may take a matrix-vector kernel
_SMALL = 1 << 17  # weights that stay in a core's cache: a plain call takes 5 to 20 us, a packed one 20 to 60

Product = Callable[[torch.Tensor], torch.Tensor]
Kernel = Callable[[torch.Tensor, torch.Tensor | None], Product]


class Linear:
    """`x [rows, in] -> x @ weight.T + bias [rows, out]`; if `exact`, a row's bits do not depend on the other rows.

    On a CPU it is always exact. It is fastest with `padded(rows, sizes)` rows. The thread count of torch must not
    change afterwards.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, exact: bool = True) -> None:
        kernel = _kernel(weight)
        self._product = kernel(weight, bias)
        biased = bias is not None
        self.sizes = _sizes(kernel, weight, biased) if exact or weight.device.type == "cpu" else _UNPROBED

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return _in_pieces(self._product, x, self.sizes)


def padded(rows: int, sizes: Sequence[int]) -> int:
    """The number of rows to feed for `rows`: pieces of the largest of `sizes`, then the next one that fits.

    `sizes` ascend. With sizes 4, 8 and 16, three rows become 4, nine become 16, and eighteen become 20.
    """
    whole, rest = divmod(rows, sizes[-1])
    return whole * sizes[-1] + (sizes[bisect_left(sizes, rest)] if rest else 0)


def _in_pieces(product: Product, x: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    rows = x.shape[0]
    num_fed = padded(rows, sizes)
    if num_fed > rows:
        x = F.pad(x, (0, 0, 0, num_fed - rows))
    if num_fed > sizes[-1]:
        return torch.cat([product(piece) for piece in torch.split(x, sizes[-1])])[:rows]
    return product(x)[:rows] if num_fed > rows else product(x)


def _plain(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    return lambda x: F.linear(x, weight, bias)


def _packed(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """A product with the weight in oneDNN's own layout (private operators of torch, used in this file only).

    In bf16 the layout for one row is used. It is the fastest for up to 16 rows (by 5 to 8 % on AMX), and on AMX its
    sums do not depend on the number of rows; the layout for more rows sums in another order from 33 rows on. In fp32
    oneDNN chooses, which is faster from 2 rows on.
    """
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 1 if weight.dtype == torch.bfloat16 else None)
    except (AttributeError, RuntimeError):  # torch without the operator, or a processor without the dtype
        return _plain(weight, bias)
    product = torch.ops.mkldnn._linear_pointwise
    return lambda x: product(x, packed, bias, "none", [], "")


def _kernel(weight: torch.Tensor) -> Kernel:
    return _plain if weight.device.type != "cpu" or weight.numel() <= _SMALL else _packed


def _sizes(kernel: Kernel, weight: torch.Tensor, biased: bool) -> Sequence[int]:
    return _alike(kernel, *weight.shape, biased, weight.dtype, weight.device, torch.get_num_threads())


@cache
def _alike(
    kernel: Kernel,
    out_features: int,
    in_features: int,
    biased: bool,
    dtype: torch.dtype,
    device: torch.device,
    threads: int,
) -> Sequence[int]:
    """The row counts for which products of this shape give each row the bits that it has in the reference tile.

    The terms of each probed sum cancel, so only rounding remains. A kernel that sums in another order then differs in
    nearly every entry; with plain random numbers it may differ in one of thousands, or in none.
    """
    generator = torch.Generator(device).manual_seed(threads)
    order = torch.randperm(in_features // 2, generator=generator, device=device)
    half = torch.randn(out_features, in_features // 2, generator=generator, device=device).to(dtype)
    weight = F.pad(torch.cat([half, -half[:, order]], 1), (0, in_features % 2))
    half = torch.randn(_PROBED_ROWS[-1], in_features // 2, generator=generator, device=device).to(dtype)
    x = F.pad(torch.cat([half, half[:, order]], 1), (0, in_features % 2))
    product = kernel(weight, torch.zeros(out_features, dtype=dtype, device=device) if biased else None)
    expected = _in_pieces(product, x, [_CPU_TILE_ROWS if device.type == "cpu" else _GPU_TILE_ROWS])
    return tuple(rows for rows in _PROBED_ROWS if torch.equal(product(x[:rows]), expected[:rows]))
