"""What compiled loops share: an exponential that is right, and machine code kept for as long as its sources stand."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from core.model import kernels
from core.model.compiling import exponential, kept_of


def test_the_exponential_is_right() -> None:
    numbers = np.linspace(-86.9, 87.9, 20001, dtype=np.float32)
    ours = np.array([exponential(number) for number in numbers])
    np.testing.assert_allclose(ours, np.exp(numbers.astype(np.float64)), rtol=4e-7)
    low, high = exponential(np.float32(-np.inf)), exponential(np.float32(np.inf))
    assert (low, high) == (exponential(np.float32(-87)), exponential(np.float32(88)))


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
