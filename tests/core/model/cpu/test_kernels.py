"""Kernels: products that are right, a row's bits its own whoever shares one, at every level this processor has.

AMX's tiles are emulated in C, for their indexing.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int64, c_void_p
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from core.model.cpu import bindings, build

SOURCE = Path(__file__).with_name("kernels_test.c")
EMULATED = "tiles emulated"
_HERE = [name for name, needed in build.LEVELS.items() if name != "amx" and build._features().issuperset(needed)]
LEVELS = [*_HERE, *([EMULATED] if "avx512_bf16" in _HERE else [])]
ROWS = 37  # three tiles
WIDEST = 3 * 2 * 64  # inputs of more steps than are summed at a stretch

Array = NDArray[np.float32]


def loaded(level: str) -> ctypes.CDLL:
    emulated = level == EMULATED
    library = build.load("avx512_bf16" if emulated else level, SOURCE, ["-DEMULATED_TILES"] if emulated else [])
    library.sum.restype = library.multiply_add.restype = c_float
    return library


@pytest.fixture(params=LEVELS)
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return loaded(request.param)


@pytest.fixture
def rounds(library: ctypes.CDLL) -> bool:
    """Whether inputs of bf16's products are rounded to bf16, too: 1 + 2^-9 is 1 then."""
    return bool(multiplied(library, np.float32([[1 + 2**-9]]), torch.ones(1, 1).bfloat16())[0, 0] == 1)


def address(array: Array) -> c_void_p:
    return c_void_p(array.ctypes.data)


def multiplied(
    library: ctypes.CDLL, x: Array, weight: torch.Tensor, bias: torch.Tensor | None = None, threads: int = 1
) -> Array:
    out = np.full((len(x), len(weight)), np.nan, np.float32)
    outs, ins = weight.shape
    words = (weight.view(torch.uint16) if weight.dtype == torch.bfloat16 else weight).numpy()
    packed = np.ascontiguousarray(bindings.pack(library, words))
    added = None if bias is None else bias.data_ptr()
    matrix = bindings.CMatrix(packed.ctypes.data, added, outs, ins, packed.shape[1])
    in_bf16, x = c_int64(weight.dtype == torch.bfloat16), np.ascontiguousarray(x)
    library.multiply(byref(matrix), in_bf16, address(x), c_int64(len(x)), c_int64(threads), address(out))
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("outs", "ins"),
    [(96, 64), (100, 33), (7, 5), (1, 1), (70, WIDEST), pytest.param(300, 768, marks=pytest.mark.thorough)],
)
def test_products_are_right_and_rows_independent(
    library: ctypes.CDLL, rounds: bool, dtype: torch.dtype, outs: int, ins: int
) -> None:
    generator = torch.Generator().manual_seed(outs + ins)
    weight, bias, x = (torch.randn(shape, generator=generator) for shape in ((outs, ins), (outs,), (ROWS, ins)))
    weight = weight.to(dtype)
    fed = x.bfloat16() if dtype == torch.bfloat16 and rounds else x
    for added in (bias, None):
        wanted = fed.double() @ weight.double().T + (0.0 if added is None else added.double())
        out = multiplied(library, x.numpy(), weight, added)
        torch.testing.assert_close(torch.from_numpy(out), wanted.float(), rtol=1e-5, atol=3e-5 * ins**0.5)
        for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33):
            for begin in (0, ROWS - rows):
                own = multiplied(library, x[begin : begin + rows].numpy(), weight, added)
                assert np.array_equal(own, out[begin : begin + rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_there_may_be_no_rows(library: ctypes.CDLL, dtype: torch.dtype) -> None:
    """As for the head where no logits are wanted; no tile may have none."""
    assert multiplied(library, np.empty((0, 64), np.float32), torch.ones(40, 64, dtype=dtype)).shape == (0, 40)


def test_a_team_gives_the_same_bits(library: ctypes.CDLL) -> None:
    x, weight = np.random.default_rng(0).normal(size=(11, 64)).astype(np.float32), torch.randn(300, 64).bfloat16()
    assert np.array_equal(multiplied(library, x, weight, threads=2), multiplied(library, x, weight))


def test_what_is_no_number_stays_none(library: ctypes.CDLL) -> None:
    x = np.ones((2, 64), np.float32)
    x[0, 3], x[1, 4] = np.nan, np.inf
    weight = torch.ones(32, 64, dtype=torch.bfloat16)
    out = multiplied(library, x, weight)
    assert np.isnan(out[0]).all()
    assert np.isposinf(out[1]).all()
    for bits in (0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FFF8000):
        x[0, 3] = np.array(bits, np.uint32).view(np.float32)
        assert np.isnan(multiplied(library, x, weight)[0]).all()


def test_inputs_are_rounded_as_torch_rounds_them(library: ctypes.CDLL, rounds: bool) -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    x[0, :4] = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8])  # between two, to even
    wanted = x.bfloat16().float().numpy() if rounds else x.numpy()
    assert np.array_equal(multiplied(library, x.numpy(), torch.eye(64, dtype=torch.bfloat16)), wanted)


def test_the_exponential_is_right(library: ctypes.CDLL) -> None:
    numbers = np.array([*np.linspace(-86.9, 87.9, 20001), -np.inf, -87, np.inf, 88, np.nan], np.float32)
    ours = np.empty_like(numbers)
    library.exponentials(address(numbers), c_int64(len(numbers)), address(ours))
    # where sums are not fused the remainder of large numbers is rounded twice
    tolerance = 4e-7 if library.multiply_add(*map(c_float, (1 + 2**-12, 1 + 2**-12, -1 - 2**-11))) else 8e-6
    np.testing.assert_allclose(ours[:-5], np.exp(numbers[:-5].astype(np.float64)), rtol=tolerance)
    assert (ours[-5], ours[-3]) == (ours[-4], ours[-2])
    assert np.isnan(ours[-1])
    alone = np.empty(1, np.float32)
    for at in range(0, len(numbers), 997):  # as part of a vector or by itself
        library.exponentials(address(numbers[at:]), c_int64(1), address(alone))
        assert alone[0] == ours[at]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 65, 768, 1001])
def test_a_sum_is_taken_by_halves_to_the_bit(library: ctypes.CDLL, size: int) -> None:
    numbers = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    left = numbers.copy()
    while left.size > 1:
        half = (left.size + 1) // 2
        left[: left.size - half] += left[half:]
        left = left[:half]
    assert library.sum(address(numbers), c_int64(size)) == left[0]


def test_products_and_sums_are_fused_only_where_that_is_said() -> None:
    """A product that another level rounds twice is rounded once where there are FMAs."""
    near, less = np.float32(1 + 2**-12), np.float32(-1 - 2**-11)
    assert near * near + less == 0.0
    fused = {level: loaded(level).multiply_add(*map(c_float, (near, near, less))) for level in LEVELS}
    assert fused == {level: 0.0 if level == "plain" else 2**-24 for level in LEVELS}
