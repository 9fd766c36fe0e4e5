"""The one seam every matrix product of torch goes through, with the fastest kernel whose rows do not depend on others.

On a CPU a pass of a few rows waits for memory, so the weight is laid out beforehand by oneDNN. Small weights are left
to plain kernels, whose calls cost less. How many rows a kernel must have to give each the same bits is found for every
shape when a model is loaded, by comparing bits: one or two left over may take another kernel, and many may be summed
otherwise, as another processor or thread count has it. Inputs are cut and padded to the numbers found, so that no other
ever occurs. On GPUs that is so only where a model is to be exact.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812

# What the bits of a row are, is what they are among so many. On a GPU reading the weight takes as long for 64 as for 1.
_CPU_TILE_ROWS, _GPU_TILE_ROWS = 8, 64
_PROBED_ROWS = (*range(1, 41), 48, 56, *range(64, 129, 16), 160, 192, 224, 256)
_UNPROBED = range(4, sys.maxsize)  # one row may take a matrix-vector kernel, which sums in another order
_AMX_ROWS = 16  # of a register tile; rows that do not fill one cost up to a third more than if they did, beyond two
_SMALL = 1 << 17  # weights; those stay in a core's cache, where a plain call takes 5 to 20 us, the others' 20 to 60

Product = Callable[[torch.Tensor], torch.Tensor]
Kernel = Callable[[torch.Tensor, torch.Tensor | None], Product]


class Linear:
    """`x [rows, in] -> x @ weight.T + bias [rows, out]`, a row's bits independent of the other rows if it is `exact`.

    On a CPU it always is. Is quickest with as many rows as `padded(rows, sizes)` says. The thread count of torch must
    not change afterwards.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, exact: bool = True) -> None:
        kernel = _kernel(weight)
        self._product = kernel(weight, bias)
        biased = bias is not None
        self.sizes = _sizes(kernel, weight, biased) if exact or weight.device.type == "cpu" else _UNPROBED

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return _in_pieces(self._product, x, self.sizes)


def padded(rows: int, sizes: Sequence[int]) -> int:
    """How many rows to feed where so many are wanted: pieces of the longest of `sizes` (ascending), then one that fits.

    With sizes 4, 8 and 16, three rows become 4, nine become 16, and eighteen 20.
    """
    whole, rest = divmod(rows, sizes[-1])
    return whole * sizes[-1] + (sizes[bisect_left(sizes, rest)] if rest else 0)


def _in_pieces(product: Product, x: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    rows = x.shape[0]
    fed = padded(rows, sizes)
    if fed > rows:
        x = F.pad(x, (0, 0, 0, fed - rows))
    if fed > sizes[-1]:
        return torch.cat([product(piece) for piece in torch.split(x, sizes[-1])])[:rows]
    return product(x)[:rows] if fed > rows else product(x)


def _plain(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    return lambda x: F.linear(x, weight, bias)


def _packed(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """The weight in oneDNN's own layout where that exists (private operators of torch, used in this file only).

    bf16 is laid out for one row: of its layouts that is the quickest for up to 16 rows (by 5 to 8 % on AMX), and the
    one whose sums on AMX do not depend on the number of rows; laid out for more it sums otherwise from 33 on. fp32 is
    left to oneDNN, whose choice is quicker there from 2 rows on.
    """
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 1 if weight.dtype == torch.bfloat16 else None)
    except (AttributeError, RuntimeError):  # torch without the operator, or a processor without the dtype
        return _plain(weight, bias)
    product = torch.ops.mkldnn._linear_pointwise
    return lambda x: product(x, packed, bias, "none", [], "")


def _kernel(weight: torch.Tensor) -> Kernel:
    return _plain if weight.device.type != "cpu" or weight.numel() <= _SMALL else _packed


def has_tiles() -> bool:
    """Whether the processor multiplies tiles of bf16 (a private function of torch, used here only)."""
    return bool(torch.cpu._is_amx_tile_supported())


def _sizes(kernel: Kernel, weight: torch.Tensor, biased: bool) -> Sequence[int]:
    sizes = _alike(kernel, *weight.shape, biased, weight.dtype, weight.device, torch.get_num_threads())
    if kernel is _packed and weight.dtype == torch.bfloat16 and has_tiles():
        return tuple(rows for rows in sizes if rows <= 2 * _AMX_ROWS or rows % _AMX_ROWS == 0)
    return sizes


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
    """Of how many rows products of this shape give each row the bits it has in a tile.

    Each sum's terms cancel, so that what is left is what rounding made of it: a kernel that sums in another order shows
    in nearly every entry, where with plain random numbers it may show in one of thousands, or in none.
    """
    generator = torch.Generator(device).manual_seed(threads)
    order = torch.randperm(in_features // 2, generator=generator, device=device)
    half = torch.randn(out_features, in_features // 2, generator=generator, device=device).to(dtype)
    weight = F.pad(torch.cat([half, -half[:, order]], 1), (0, in_features % 2))
    half = torch.randn(_PROBED_ROWS[-1], in_features // 2, generator=generator, device=device).to(dtype)
    x = F.pad(torch.cat([half, half[:, order]], 1), (0, in_features % 2))
    product = kernel(weight, torch.zeros(out_features, dtype=dtype, device=device) if biased else None)
    wanted = _in_pieces(product, x, [_CPU_TILE_ROWS if device.type == "cpu" else _GPU_TILE_ROWS])
    return tuple(rows for rows in _PROBED_ROWS if torch.equal(product(x[:rows]), wanted[:rows]))
