"""What compiled loops share: arithmetic that is right to the bit, and machine code kept while its sources stand."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import njit

from core.model import compiling, kernels
from core.model.compiling import exponential, fused, kept_of, total


def test_the_exponential_is_right() -> None:
    numbers = np.linspace(-86.9, 87.9, 20001, dtype=np.float32)
    ours = np.array([exponential(number) for number in numbers])
    np.testing.assert_allclose(ours, np.exp(numbers.astype(np.float64)), rtol=4e-7)
    low, high = exponential(np.float32(-np.inf)), exponential(np.float32(np.inf))
    assert (low, high) == (exponential(np.float32(-87)), exponential(np.float32(88)))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 65, 768, 1001])
def test_a_sum_is_taken_by_halves_to_the_bit(size: int) -> None:
    numbers = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    left = numbers.copy()
    while left.size > 1:
        half = (left.size + 1) // 2
        left[: left.size - half] += left[half:]
        left = left[:half]
    assert total(numbers) == left[0]


def test_a_fused_product_is_rounded_once() -> None:
    near, less = np.float32(1 + 2**-12), np.float32(-1 - 2**-11)
    assert near * near + less == 0.0

    @njit
    def once(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
        return fused(a, b, c)

    assert once(near, near, less) == 2**-24


@pytest.fixture
def kept_in(tmp_path: Path) -> Any:
    """A function of the kernels whose machine code is kept there."""
    return SimpleNamespace(py_func=kernels.forward.py_func, stats=SimpleNamespace(cache_path=str(tmp_path)))


def test_what_was_compiled_of_other_sources_is_thrown_away_once(kept_in: Any, tmp_path: Path) -> None:
    stale, index = tmp_path / "kernels.draw-1.py311.1.nbc", tmp_path / "kernels.draw-1.py311.nbi"
    with kept_of(kept_in):
        pass
    (tmp_path / "kernels.sources").write_text("of another day")
    for file in (stale, index):
        file.touch()
    with kept_of(kept_in):
        assert not stale.exists()
        assert not index.exists()
        index.touch()
    with kept_of(kept_in):
        assert index.exists()


def test_one_at_a_time_compiles(kept_in: Any) -> None:
    inside: list[str] = []

    def compile_too() -> None:
        with kept_of(kept_in):
            inside.append("second")

    with kept_of(kept_in):
        other = threading.Thread(target=compile_too)
        other.start()
        other.join(0.2)
        inside.append("first")
    other.join(10)
    assert inside == ["first", "second"]


def test_make_compiles_anew_what_would_be_thrown_away() -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    listed = makefile.partition("$(addprefix core/model/,")[2].partition(")")[0]
    assert set(listed.split()) == set(compiling._SOURCES)
