"""Products in vector registers: rows meet a panel of outputs, whose sums stay there while the weight is read once.

Every row's sums are taken in one order. A pass of 1 to 5 tokens over 100 million weights in bf16 takes 1.2 to 1.5 times
what reading them takes, where with oneDNN's and torch's kernels it took 3.5 to 4.1 times (tests.bench.step, Zen 4).

bf16 weights are multiplied by the processor's own instruction where it has one, which has the inputs rounded to bf16,
and else in fp32, to which they are widened in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from core.model.compiling import Array, inner, intrinsic, processor_has
from core.model.llvm import Matrix, call, fetch_ahead, matrix_of

LANES = 16 if processor_has("avx512f") else 8  # of a vector register
NATIVE = LANES == 16 and processor_has("avx512bf16")
WIDTH = 2 * LANES  # outputs of a panel
ROWS_AT_ONCE = 8 if LANES == 16 else 6  # that are summed at once; sums of more would not all stay in registers
STRETCH = 64  # steps of which more rows than ROWS_AT_ONCE sum one group after another, while they are in the cache

Fed = Array | NDArray[np.uint32]
"""Rows as a panel's loop reads them: fp32, or rounded to bf16, two to a word."""

_FLOAT, _WORD, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_FLOATS, _WORDS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_WORD, LANES)


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def _everywhere(builder: Any, number: Any, kind: Any) -> Any:
    """A vector of the one number."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(_WORDS, [0] * LANES))


class _Columns:
    """Writes loops that multiply some vectors of a weight's columns with some rows, whose sums stay in registers."""

    def __init__(self, builder: Any, of_words: bool, by_pairs: bool, weight: Matrix, x: Matrix, out: Matrix) -> None:
        self._builder = builder
        self._of_words, self._by_pairs = of_words, by_pairs
        self._weight, self._x, self._out = weight, x, out

    def loop(self, rows: int, vectors: int, first: Any, end: Any, done: Any) -> None:
        """Over the steps from `first` to before `end`, of which there must be one."""
        builder = self._builder
        before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        places = [(row, vector) for row in range(rows) for vector in range(vectors)]
        begun = [builder.load(self._sums(*place), align=4) for place in places]
        builder.branch(body)
        builder.position_at_end(body)
        step = builder.phi(_LONG)
        sums = [builder.phi(_FLOATS) for _ in places]
        offsets = [4 * LANES * vector for vector in range(vectors)]
        weights = [builder.load(self._at(self._weight, step, offset, _WORDS), align=4) for offset in offsets]
        for offset in offsets:
            fetch_ahead(builder, self._at(self._weight, step, offset, _WORD))
        added = self._products(step, sums, weights)
        following = builder.add(step, ir.Constant(_LONG, 1))
        for value, initial, later in zip([step, *sums], [first, *begun], [following, *added], strict=True):
            value.add_incoming(initial, before)
            value.add_incoming(later, body)
        builder.cbranch(builder.icmp_signed("<", following, end), body, after)
        builder.position_at_end(after)
        for place, vector in zip(places, added, strict=True):
            builder.store(vector, self._sums(*place), align=4)
        builder.branch(done)

    def _sums(self, row: int, vector: int) -> Any:
        return self._at(self._out, ir.Constant(_LONG, row), 4 * LANES * vector, _FLOATS)

    def _products(self, step: Any, sums: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """`sums`, as many vectors of each row as of weights, and what this step's inputs add to them."""
        builder = self._builder
        if self._by_pairs:
            return self._pairs(step, sums, weights)
        if not self._of_words:
            return self._added(step, sums, [builder.bitcast(words, _FLOATS) for words in weights], 4, 0)
        sixteen, upper = ir.Constant(_WORDS, [16] * LANES), ir.Constant(_WORDS, [0xFFFF0000] * LANES)
        first = [builder.bitcast(builder.shl(words, sixteen), _FLOATS) for words in weights]
        sums = self._added(step, sums, first, 8, 0)
        second = [builder.bitcast(builder.and_(words, upper), _FLOATS) for words in weights]
        return self._added(step, sums, second, 8, 4)

    def _added(self, step: Any, sums: Sequence[Any], weights: Sequence[Any], size: int, offset: int) -> list[Any]:
        """One input of each row, where a step has `size` bytes, times its weights; each added in one operation."""
        builder = self._builder
        number = len(weights)
        inputs = [self._input(row, step, size, offset, _FLOATS) for row in range(len(sums) // number)]
        name, places = f"fma.v{LANES}f32", [divmod(at, number) for at in range(len(sums))]
        return [call(builder, name, inputs[i], weights[j], sums[i * number + j], result=_FLOATS) for i, j in places]

    def _pairs(self, step: Any, sums: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Two inputs of each row in bf16 and their weights."""
        builder, pairs = self._builder, ir.VectorType(_BFloat(), 2 * LANES)
        number, words = len(weights), [builder.bitcast(word, pairs) for word in weights]
        inputs = [builder.bitcast(self._input(row, step, 4, 0, _WORDS), pairs) for row in range(len(sums) // number)]
        name, places = "x86.avx512bf16.dpbf16ps.512", [divmod(at, number) for at in range(len(sums))]
        return [call(builder, name, sums[i * number + j], inputs[i], words[j], result=_FLOATS) for i, j in places]

    def _input(self, row: int, step: Any, size: int, offset: int, kind: Any) -> Any:
        builder = self._builder
        begin = builder.add(self._x.begin, builder.mul(step, ir.Constant(_LONG, size)))
        at = self._at(self._x._replace(begin=begin), ir.Constant(_LONG, row), offset, kind.element)
        return _everywhere(builder, builder.load(at, align=4), kind)

    def _at(self, matrix: Matrix, row: Any, offset: int, kind: Any) -> Any:
        builder = self._builder
        begin = builder.add(matrix.begin, builder.mul(row, matrix.stride))
        return builder.inttoptr(builder.add(begin, ir.Constant(_LONG, offset)), kind.as_pointer())


@intrinsic
def _add_few(context: Any, rows: Any, wide: Any, first: Any, end: Any, weight: Any, x: Any, out: Any) -> Any:  # noqa: ARG001
    """Add to the first WIDTH columns of `out` those of 1 to ROWS_AT_ONCE rows of `x` @ `weight` [steps, columns].

    It is what the steps from `first` to before `end` add. Or, where it is `wide`, to twice as many columns of no more
    than half as many rows.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")  # it is long, and compiling its callers would take longer
        arrays = zip(signature.args[4:], arguments[4:], strict=True)
        matrices = [matrix_of(context, builder, kind, value) for kind, value in arrays]
        columns = _Columns(builder, weight.dtype == types.uint32, x.dtype == types.uint32, *matrices)
        shapes = [(number, 2) for number in range(1, ROWS_AT_ONCE + 1)]
        shapes += [(number, 4) for number in range(1, ROWS_AT_ONCE // 2 + 1)]
        done = builder.append_basic_block()
        double = builder.select(arguments[1], ir.Constant(_LONG, 2), ir.Constant(_LONG, 1))
        choice = builder.switch(builder.add(builder.mul(arguments[0], ir.Constant(_LONG, 4)), double), done)
        for number, vectors in shapes:
            block = builder.append_basic_block()
            choice.add_case(ir.Constant(_LONG, 4 * number + vectors // 2), block)
            builder.position_at_end(block)
            columns.loop(number, vectors, arguments[2], arguments[3], done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(types.int64, types.boolean, types.int64, types.int64, weight, x, out), generate


@inner
def add_product(x: Fed, weight: Fed, out: Array) -> None:
    """`out` [rows, columns] += `x` [rows, steps] @ `weight` [steps, columns], a multiple of WIDTH columns."""
    rows, (steps, columns) = x.shape[0], weight.shape
    groups = max(1, (rows + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE)
    number, stretch = (rows + groups - 1) // groups, steps if groups == 1 else STRETCH
    column = 0
    while column < columns:
        wide = rows <= ROWS_AT_ONCE // 2 and column + 2 * WIDTH <= columns  # one row's sums would wait for each other
        for step in range(0, steps, stretch):
            end = min(steps, step + stretch)
            for row in range(0, rows, max(1, number)):
                _add_few(min(number, rows - row), wide, step, end, weight[:, column:], x[row:], out[row:, column:])
        column += 2 * WIDTH if wide else WIDTH
