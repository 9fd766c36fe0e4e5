"""Compiled products: right, a row's bits its own whoever shares the product, on this processor and on lesser ones.

Only one with tiles tests those.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from core.model import products, registers, tiles
from core.model.compiling import Array, processor_has

AVX512 = "+avx,+avx2,+fma,+avx512f,+avx512bw,+avx512dq,+avx512vl"
KINDS = {
    "AVX2": ("haswell", "+avx,+avx2,+fma", "8 False"),
    "AVX-512": ("skylake-avx512", AVX512, "16 False"),
    "AVX-512 with bf16": ("cooperlake", f"{AVX512},+avx512bf16", "16 True"),
}
"""Processors without tiles: their LLVM name, what of theirs loops use, and what then is in a register."""
ROWS = 37  # three tiles
ROUNDED = registers.NATIVE or products.WORDS is np.int32  # inputs of bf16's products


def multiplied(x: Array, weight: torch.Tensor, bias: torch.Tensor | None = None, threads: int | None = None) -> Array:
    out = np.full((len(x), len(weight)), np.nan, np.float32)
    added = np.empty(0, np.float32) if bias is None else bias.float().numpy()
    products.multiply(x, products.pack(weight), added, out, threads)
    return out


def check(dtype: torch.dtype, outs: int, ins: int, threads: int | None = None) -> None:
    generator = torch.Generator().manual_seed(outs + ins)
    weight, bias, x = (torch.randn(shape, generator=generator) for shape in ((outs, ins), (outs,), (ROWS, ins)))
    weight = weight.to(dtype)
    fed = x.bfloat16() if dtype == torch.bfloat16 and ROUNDED else x
    for added in (bias, None):
        wanted = fed.double() @ weight.double().T + (0.0 if added is None else added.double())
        out = multiplied(x.numpy(), weight, added, threads)
        torch.testing.assert_close(torch.from_numpy(out), wanted.float(), rtol=1e-5, atol=3e-5 * ins**0.5)
        for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33):
            for begin in (0, ROWS - rows):
                own = multiplied(x[begin : begin + rows].numpy(), weight, added, threads)
                assert np.array_equal(own, out[begin : begin + rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("outs", "ins"), [(96, 64), (100, 33), (7, 5), (1, 1), (300, 768)])
def test_products_are_right_and_rows_independent(dtype: torch.dtype, outs: int, ins: int) -> None:
    check(dtype, outs, ins)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_there_may_be_no_rows(dtype: torch.dtype) -> None:
    """As for the head where no logits are wanted; no tile may have none."""
    assert multiplied(np.empty((0, 64), np.float32), torch.ones(40, 64, dtype=dtype)).shape == (0, 40)


def test_a_team_gives_the_same_bits() -> None:
    x, weight = np.random.default_rng(0).normal(size=(11, 64)).astype(np.float32), torch.randn(300, 64).bfloat16()
    assert np.array_equal(multiplied(x, weight, threads=2), multiplied(x, weight))


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_lesser_processor(kind: str) -> None:
    name, features, found = KINDS[kind]
    if not all(processor_has(feature) for feature in features.replace("+", "").split(",")):
        pytest.skip("this processor is a lesser one")
    code = """if True:
        import numpy as np
        import torch
        from core.model import products, registers
        from tests.core.model.test_products import check
        assert products.WORDS is np.uint32
        for dtype in (torch.bfloat16, torch.float32):
            check(dtype, 100, 33)
            check(dtype, 70, 3 * 2 * registers.STRETCH)  # inputs of more steps than are summed at a stretch
        print(registers.LANES, registers.NATIVE)
    """
    environment = os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, f"{found}\n"), run.stderr


@pytest.mark.parametrize(("has", "answer", "granted"), [(True, 0, True), (True, -1, False), (False, 0, False)])
def test_tiles_are_asked_for(monkeypatch: pytest.MonkeyPatch, has: bool, answer: int, granted: bool) -> None:
    monkeypatch.setattr(tiles, "processor_has", lambda feature: has and feature == "amx-bf16")
    monkeypatch.setattr(tiles.ctypes, "CDLL", lambda _: SimpleNamespace(syscall=lambda *_: answer))
    assert tiles.granted() is granted


def test_what_is_no_number_stays_none() -> None:
    x = np.ones((2, 64), np.float32)
    x[0, 3], x[1, 4] = np.nan, np.inf
    weight = torch.ones(32, 64, dtype=torch.bfloat16)
    out = multiplied(x, weight)
    assert np.isnan(out[0]).all()
    assert np.isposinf(out[1]).all()
    for bits in (0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FFF8000):
        x[0, 3] = np.array(bits, np.uint32).view(np.float32)
        assert np.isnan(multiplied(x, weight)[0]).all()


@pytest.mark.skipif(not ROUNDED, reason="this processor multiplies no bf16")
def test_inputs_are_rounded_as_torch_rounds_them() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    x[0, :4] = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8])  # between two, to even
    ours = [multiplied(rows.numpy(), torch.eye(64, dtype=torch.bfloat16)) for rows in (x, x.bfloat16().float())]
    assert np.array_equal(*ours)
    assert np.array_equal(ours[0], x.bfloat16().float().numpy())
