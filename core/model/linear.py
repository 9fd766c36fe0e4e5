"""The one seam every matrix product goes through, with the fastest kernel whose rows do not depend on one another.

A pass of a few rows waits for memory, so the weight is laid out beforehand and read once in few bytes: by oneDNN in its
own dtype or, for bf16 on a processor that cannot multiply it, by FBGEMM as fp16, which has more digits (2 to 3 times as
fast there for 4 to 8 rows). Small weights are left to plain kernels, whose calls cost less. Whether a kernel gives a
row the same bits whatever the number of rows is checked for every shape when a model is loaded, by comparing bits.
Some do up to a number of rows only, and longer inputs are cut there; where none does (another processor, another
thread count) the kernel gets tiles of a fixed number of rows, so that it always sees the same shape.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812

MIN_ROWS = 4  # one row may take a matrix-vector kernel, which sums in another order
MAX_ROWS = 256  # longer inputs are cut, so that no row count occurs that was not probed in kind
_CUTS = (MAX_ROWS, 128, 64, 32, 16)  # where inputs may be cut, the longest piece that keeps its bits first
_TILE_ROWS = 8
_AMX_ROWS = 16  # of a register tile; rows that do not fill one cost up to a third more than if they did, beyond two
_SMALL = 1 << 17  # weights; those stay in a core's cache, where a plain call takes 5 to 20 us, the others' 20 to 60
_MOST_FP16 = 65504.0
_PROBED_ROWS = (*range(MIN_ROWS, 18), 24, 31, 32, 33, 48, 64, 65, 96, 127, 128, 129, 192, 255, 256)

Product = Callable[[torch.Tensor], torch.Tensor]
Kernel = Callable[[torch.Tensor, torch.Tensor | None], Product]


def activation_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """What a model of `dtype` computes in between its products: fp32 for bf16 where the processor has no bf16."""
    return torch.float32 if dtype == torch.bfloat16 and device.type == "cpu" and _bf16_is_emulated() else dtype


class _Bounds(NamedTuple):
    """Between how many rows a kernel gives a row the same bits; `most` = 0: for no two numbers of them."""

    least: int
    most: int


_ANY = _Bounds(MIN_ROWS, sys.maxsize)


class Linear:
    """`x [rows, in] -> x @ weight.T + bias [rows, out]`, a row's bits independent of the other rows.

    Wants at least `min_rows` rows of the weight's `activation_dtype`, and is quickest with as many as `padded` says.
    The thread count of torch must not change afterwards.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        computed = weight.to(activation_dtype(weight.dtype, weight.device))
        kernel = _kernel(computed, widened=computed.dtype != weight.dtype)
        self._product = kernel(computed, None if bias is None else bias.to(computed.dtype))
        on_cpu, threads = weight.device.type == "cpu", torch.get_num_threads()
        self._rows = _bounds(kernel, *weight.shape, computed.dtype, threads) if on_cpu else _ANY
        self.min_rows = self._rows.least
        self._step = _AMX_ROWS if kernel is _packed and computed.dtype == torch.bfloat16 and _has_amx() else 1

    def padded(self, rows: int) -> int:
        """How many rows to feed where so many are wanted."""
        rows = max(rows, self.min_rows)
        return rows if rows <= 2 * self._step else -(-rows // self._step) * self._step

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not self._rows.most:
            return _by_tiles(self._product, x)
        if x.shape[0] > self._rows.most:
            return torch.cat([self._product(part) for part in _parts(x, self._rows.most)])
        return self._product(x)


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


def _half(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """An fp32 weight that came from bf16, kept as fp16 by FBGEMM and multiplied in fp32."""
    packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
    product = torch.ops.quantized.linear_dynamic_fp16
    return lambda x: product(x, packed)


def _kernel(weight: torch.Tensor, widened: bool) -> Kernel:
    if weight.device.type != "cpu" or weight.numel() <= _SMALL:
        return _plain
    return _half if widened and float(weight.abs().max()) <= _MOST_FP16 else _packed


@cache
def _bf16_is_emulated() -> bool:
    """Whether FBGEMM's fp16 is there and bf16 instructions are not (private functions of torch, used here only)."""
    native = torch.cpu._is_avx512_bf16_supported() or _has_amx()
    return "fbgemm" in torch.backends.quantized.supported_engines and not native


def _has_amx() -> bool:
    return bool(torch.cpu._is_amx_tile_supported())


def _parts(x: torch.Tensor, most: int) -> list[torch.Tensor]:
    """Cut rows into pieces of at most `most`, none shorter than `MIN_ROWS`."""
    sizes = [most] * (x.shape[0] // most)
    rest = x.shape[0] % most
    if 0 < rest < MIN_ROWS:
        sizes[-1] -= MIN_ROWS
        rest += MIN_ROWS
    return list(torch.split(x, [*sizes, rest] if rest else sizes))


def _by_tiles(product: Product, x: torch.Tensor) -> torch.Tensor:
    rows = x.shape[0]
    padded = F.pad(x, (0, 0, 0, -rows % _TILE_ROWS))
    if len(padded) == _TILE_ROWS:
        return product(padded)[:rows]
    return torch.cat([product(tile) for tile in torch.split(padded, _TILE_ROWS)])[:rows]


@cache
def _bounds(kernel: Kernel, out_features: int, in_features: int, dtype: torch.dtype, threads: int) -> _Bounds:
    """Between how many rows products of this shape give each row the bits it has in a tile.

    Each sum's terms cancel, so that what is left is what rounding made of it: a kernel that sums in another order shows
    in nearly every entry, where with plain random numbers it may show in one of thousands, or in none.
    """
    generator = torch.Generator().manual_seed(threads)
    order = torch.randperm(in_features // 2, generator=generator)
    half = torch.randn(out_features, in_features // 2, generator=generator).to(dtype)
    weight = F.pad(torch.cat([half, -half[:, order]], 1), (0, in_features % 2))
    half = torch.randn(MAX_ROWS, in_features // 2, generator=generator).to(dtype)
    x = F.pad(torch.cat([half, half[:, order]], 1), (0, in_features % 2))
    product = kernel(weight, None)
    wanted = _by_tiles(product, x)
    alike = {rows for rows in (1, 2, 3, *_PROBED_ROWS) if torch.equal(product(x[:rows]), wanted[:rows])}
    least = 1 if {1, 2, 3} <= alike else MIN_ROWS
    most = next((cut for cut in _CUTS if alike.issuperset(rows for rows in _PROBED_ROWS if rows <= cut)), 0)
    return _Bounds(least if most else 1, most)
