"""How loops are compiled by numba, and the exponential function they share.

Compiled once for a processor, in some seconds a function, and kept beside the modules. LLVM may change no result: each
is what the source says, rounded as it says, wherever a function is called from and however often it is optimised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from filelock import FileLock
from llvmlite import ir
from numba import extending, njit, types
from numba.core import registry
from numpy.typing import NDArray

Array = NDArray[np.float32]
Integers = NDArray[np.int64]
Doubles = NDArray[np.float64]
Function = TypeVar("Function", bound=Callable[..., object])

_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",  # a division that may raise is not done for several numbers at once
    "nogil": True,
}
_SOURCES = (
    "compiling.py",
    "llvm.py",
    "rounding.py",
    "registers.py",
    "tiles.py",
    "products.py",
    "compiled_attention.py",
    "kernels.py",
)
_HIGHEST, _LOWEST = np.float32(88.0), np.float32(-87.0)  # beyond, e^x is no normal number
_LOG2_E, _LN_2 = np.float32(1.44269504), np.float32(0.69314718)
# Of the polynomial for e^r, |r| <= ln(2) / 2, from r^2 on: those of Cephes' expf.
_P2, _P3, _P4 = np.float32(5.0000001201e-1), np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
_P5, _P6, _P7 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3), np.float32(1.9875691500e-4)
_ONE = np.float32(1)

intrinsic: Callable[[Callable[..., Any]], Any] = extending.intrinsic


def inner(function: Function) -> Function:
    return cast(Function, njit(**_OPTIONS)(function))


def in_parallel(function: Function) -> Function:
    """The same loops, those over `prange` spread over a team of threads."""
    return cast(Function, njit(parallel=True, **_OPTIONS)(function))


def entry(function: Callable[..., object]) -> Any:
    """For what is called from Python; kept where it was once compiled."""
    return njit(cache=True, **_OPTIONS)(function)


@contextmanager
def kept_of(function: Any) -> Iterator[None]:
    """Have the machine code that is kept of an entry's module to oneself, and to what its sources say today.

    numba looks whether that one file has changed, not the others it is compiled of, and locks nothing.
    """
    module, directory = Path(function.py_func.__code__.co_filename), Path(function.stats.cache_path)
    directory.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(b"".join((module.parent / name).read_bytes() for name in _SOURCES)).hexdigest()
    with FileLock(directory / f"{module.stem}.lock"):
        stamp = directory / f"{module.stem}.sources"
        if not stamp.is_file() or stamp.read_text() != digest:
            for kept in directory.glob(f"{module.stem}.*.nb?"):
                kept.unlink()
            stamp.write_text(digest)
        yield


def processor_has(feature: str) -> bool:
    """Whether loops may use it, by LLVM's name."""
    _, _, features = registry.cpu_target.target_context.codegen().magic_tuple()
    return f"+{feature}" in features.split(",")


@intrinsic
def fused(context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001
    """a * b + c in fp32, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def _power_of_two(context: Any, exponent: Any) -> Any:  # noqa: ARG001
    """2 to a whole fp32 number in -126 .. 127, made of its bits: as vectors, where a call would not be."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        word = ir.IntType(32)
        biased = builder.add(builder.fptosi(arguments[0], word), ir.Constant(word, 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(word, 23)), ir.FloatType())

    return types.float32(types.float32), generate


@inner
def exponential(x: np.float32) -> np.float32:
    """e^x, right to 4e-7 of it; of what lies beyond -87 .. 88, that of the nearer one."""
    x = max(min(x, _HIGHEST), _LOWEST)
    power = np.rint(x * _LOG2_E)
    r = fused(power, -_LN_2, x)
    series = fused(fused(fused(fused(fused(_P7, r, _P6), r, _P5), r, _P4), r, _P3), r, _P2)
    value: np.float32 = fused(series, r * r, r + _ONE) * _power_of_two(power)
    return value


@inner
def total(x: Array) -> np.float32:
    """The sum of `x`, which is overwritten: its second half is added to its first until one number is left."""
    size = x.shape[0]
    while size > 1:
        half = (size + 1) // 2
        for at in range(size - half):
            x[at] += x[half + at]
        size = half
    value: np.float32 = x[0]
    return value
