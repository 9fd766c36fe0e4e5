"""Products of bf16 on the processor's tiles (Intel's AMX), where up to 32 rows wait for little but the weight.

A tile is a register of 16 rows of 64 bytes. Two with 32 inputs of 16 rows each meet two with as many weights of 16
outputs each, so that a weight is read once for 32 rows. A row's sums are taken in one order whatever else is in its
tile. A pass of 1, 5 and 16 tokens over 100 million weights takes 1.2, 1.3 and 1.6 times what reading them takes, where
with oneDNN's products, on tiles too, it took 2.0, 2.2 and 2.5 times (tests.bench.step, a Xeon, one thread).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from core.model.compiling import Array, inner, intrinsic, processor_has
from core.model.llvm import LONG, Matrix, call, fetch_ahead, matrix_of
from core.model.registers import WIDTH
from core.model.rounding import round_pairs

ROWS = 16  # of a tile
STEPS = 16  # of a panel, two inputs each, in a tile
_BYTES = 64  # of a tile's row
_INPUTS, _OUTPUTS, _SUMS = (0, 1), (2, 3), ((4, 5), (6, 7))  # registers; sums by tile of rows and of outputs
_SYSCALL, _ASK, _TILES = 158, 0x1023, 18  # arch_prctl and its arguments: to be given tiles

_BYTE, _SHORT = ir.IntType(8), ir.IntType(16)


def granted() -> bool:
    """Whether there are tiles for bf16, and Linux lets this process use them, which it does from then on."""
    return processor_has("amx-bf16") and ctypes.CDLL(None).syscall(_SYSCALL, _ASK, _TILES) == 0


@intrinsic
def _lay_out(context: Any, rows: Any) -> Any:  # noqa: ARG001
    """Have the registers for inputs and sums hold so many rows each, at least one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        kind = ir.ArrayType(_BYTE, 64)  # the first is 1; from 16 on bytes of a row, from 48 on rows, by register
        layout = cgutils.alloca_once(builder, kind)  # type: ignore[no-untyped-call]
        builder.store(ir.Constant(kind, bytearray([1] + 63 * [0])), layout)
        begin, rows = builder.ptrtoint(layout, LONG), builder.trunc(arguments[0], _BYTE)
        for register in range(8):
            height = ir.Constant(_BYTE, STEPS) if register in _OUTPUTS else rows
            for offset, size in ((16 + 2 * register, ir.Constant(_SHORT, _BYTES)), (48 + register, height)):
                at = builder.inttoptr(builder.add(begin, ir.Constant(LONG, offset)), size.type.as_pointer())
                builder.store(size, at, align=1)
        call(builder, "x86.ldtilecfg", builder.inttoptr(begin, _BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def _release(context: Any) -> Any:  # noqa: ARG001
    """Leave no registers behind, which would be saved whenever threads take turns on the core."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        call(builder, "x86.tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


class _Panel:
    """Writes loops that multiply a panel with one tile of rows, or with two, whose sums stay in registers."""

    def __init__(self, builder: Any, tiles: Any, matrices: Sequence[Matrix]) -> None:
        self._builder, self._tiles = builder, tiles
        self._weight, self._begun, self._x, self._out = *matrices[:2], matrices[2:4], matrices[4:]

    def loop(self, number: int, done: Any) -> None:
        """Over the tiles of inputs, for so many of rows."""
        builder = self._builder
        before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        places = [(row, column) for row in range(number) for column in range(2)]
        for row, column in places:
            self._move("loadd", _SUMS[row][column], self._begun._replace(stride=_number(0)), _BYTES * column)
        builder.branch(body)
        builder.position_at_end(body)
        tile = builder.phi(LONG)
        for row, x in enumerate(self._x[:number]):
            self._move("loadd", _INPUTS[row], Matrix(self._at(x, tile), _number(_BYTES)), 0)
        weight = self._weight._replace(begin=self._at(self._weight, builder.mul(tile, _number(STEPS))))
        for column, register in enumerate(_OUTPUTS):
            self._move("loadd", register, weight, _BYTES * column)
        for offset in range(0, 4 * STEPS * WIDTH, _BYTES):
            fetch_ahead(builder, self._pointer(weight.begin, offset))
        for row, column in places:
            call(builder, "x86.tdpbf16ps", *map(_register, (_SUMS[row][column], _INPUTS[row], _OUTPUTS[column])))
        following = builder.add(tile, _number(1))
        tile.add_incoming(_number(0), before)
        tile.add_incoming(following, body)
        builder.cbranch(builder.icmp_signed("<", following, self._tiles), body, after)
        builder.position_at_end(after)
        for row, column in places:
            self._move("stored", _SUMS[row][column], self._out[row], _BYTES * column)
        builder.branch(done)

    def _move(self, how: str, register: int, matrix: Matrix, offset: int) -> None:
        pointer = self._pointer(matrix.begin, offset)
        call(self._builder, f"x86.tile{how}64", _register(register), pointer, matrix.stride)

    def _at(self, matrix: Matrix, row: Any) -> Any:
        return self._builder.add(matrix.begin, self._builder.mul(row, matrix.stride))

    def _pointer(self, begin: Any, offset: int) -> Any:
        return self._builder.inttoptr(self._builder.add(begin, _number(offset)), _BYTE.as_pointer())


def _number(value: int) -> Any:
    return ir.Constant(LONG, value)


def _register(value: int) -> Any:
    return ir.Constant(_BYTE, value)


@intrinsic
def _sum(
    context: Any,  # noqa: ARG001
    two: Any,  # noqa: ARG001
    weight: Any,
    begun: Any,
    x: Any,
    other_x: Any,
    out: Any,
    other_out: Any,
) -> Any:
    """`out` = `begun` + `x` @ `weight` for a tile of rows, and where there are `two`, the same for the other."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        kinds, values = signature.args[1:], arguments[1:]
        matrices = [matrix_of(context, builder, *pair) for pair in zip(kinds, values, strict=True)]
        shape = context.make_array(kinds[2])(context, builder, values[2]).shape
        tiles = cgutils.unpack_tuple(builder, shape)[0]  # type: ignore[no-untyped-call]
        panel = _Panel(builder, tiles, matrices)
        one, both, done = (builder.append_basic_block() for _ in range(3))
        builder.cbranch(arguments[0], both, one)
        for number, block in enumerate((one, both), 1):
            builder.position_at_end(block)
            panel.loop(number, done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(types.boolean, weight, begun, x, other_x, out, other_out), generate


@inner
def in_tiles(x: Array, steps: int) -> NDArray[np.uint32]:
    """Rows rounded to bf16 [tiles of rows, tiles of inputs, rows of each, STEPS], for panels of so many steps.

    All tiles have equally many rows. So the last begins before the one before it ends, where they would not be full.
    """
    rows = x.shape[0]
    each = min(rows, ROWS)
    tiles = np.empty(((rows + ROWS - 1) // ROWS, steps // STEPS, each, STEPS), np.uint32)
    line = np.empty(steps, np.uint32)
    for tile in range(tiles.shape[0]):
        for row in range(each):
            round_pairs(x[_first(tile, rows) + row], line)
            tiles[tile, :, row] = line.reshape(-1, STEPS)
    return tiles


@inner
def _first(tile: int, rows: int) -> int:
    """Of the rows of a tile."""
    return min(tile * ROWS, max(0, rows - ROWS))


@inner
def multiply_tiles(x: NDArray[np.uint32], weight: NDArray[np.int32], begun: Array, out: Array) -> None:
    """`out` [rows, WIDTH] = `begun` [WIDTH] + `x`, in tiles, @ `weight` [steps, WIDTH]."""
    tiles, rows = x.shape[0], out.shape[0]
    if tiles == 0:
        return
    _lay_out(x.shape[2])
    for tile in range(0, tiles, 2):
        other = min(tile + 1, tiles - 1)
        begin, other_begin = _first(tile, rows), _first(other, rows)
        _sum(other > tile, weight, begun, x[tile], x[other], out[begin:], out[other_begin:])
    _release()
