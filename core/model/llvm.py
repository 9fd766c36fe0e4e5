"""What is said in LLVM's own words, where numba has none for what the processor can."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

LONG = ir.IntType(64)
_NOTHING = ir.VoidType()
_AHEAD = 8192  # bytes


class Matrix(NamedTuple):
    """Where it begins, and the bytes from a row to the next."""

    begin: Any
    stride: Any


def matrix_of(context: Any, builder: Any, kind: Any, value: Any) -> Matrix:
    """Of an array; of more dimensions than two, the strides of the first."""
    array = context.make_array(kind)(context, builder, value)
    strides = cgutils.unpack_tuple(builder, array.strides)  # type: ignore[no-untyped-call]
    return Matrix(builder.ptrtoint(array.data, LONG), strides[0])


def call(builder: Any, name: str, *arguments: Any, result: Any = _NOTHING) -> Any:
    """LLVM's own function of that name, given and giving such types."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}")  # type: ignore[no-untyped-call]
    return builder.call(function, arguments)


def fetch_ahead(builder: Any, address: Any) -> None:
    """Have what will be read after what lies there brought to the caches, or memory would idle during sums."""
    later = builder.add(builder.ptrtoint(address, LONG), ir.Constant(LONG, _AHEAD))
    how = (ir.Constant(ir.IntType(32), number) for number in (0, 3, 1))  # to read, and keep; data
    call(builder, "prefetch.p0", builder.inttoptr(later, address.type), *how)
