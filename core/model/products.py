"""Products of rows with a weight at the speed of memory: for 1 to 8 rows it is read once, from end to end.

A weight is kept in panels of outputs, each one stretch of memory in the order in which its inputs are summed; a panel
and some rows are multiplied in registers. Every row's sums are taken in one order, so that its bits depend on nothing
else. A pass of 1 to 5 tokens over 100 million weights in bf16 takes 1.2 to 1.5 times what reading them takes, where
with oneDNN's and torch's kernels it took 3.5 to 4.1 times (tests.bench.step, Zen 4).

bf16 weights are multiplied by the processor's own instruction where it has one, which has the inputs rounded to bf16,
and else in fp32, to which they are widened in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import overload
from numpy.typing import NDArray

from core.model.compiling import Array, in_parallel, inner, intrinsic, processor_has

LANES = 16 if processor_has("avx512f") else 8  # of a vector register
NATIVE = LANES == 16 and processor_has("avx512bf16")
WIDTH = 2 * LANES  # outputs of a panel
ROWS_AT_ONCE = 8 if LANES == 16 else 6  # that are summed at once; sums of more would not all stay in registers
AHEAD = 8192  # bytes by which a weight is fetched before it is needed, or memory would idle while rows are summed
STRETCH = 64  # steps of which more rows than ROWS_AT_ONCE sum one group after another, while they are in the cache

Weight = NDArray[np.uint32] | NDArray[np.float32]
"""[panels, steps, WIDTH]: a step is an input in fp32, or two in bf16, the former in a word's lower half."""

_FLOAT, _WORD, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_FLOATS, _WORDS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_WORD, LANES)


def pack(weight: torch.Tensor) -> Weight:
    """A weight [outs, ins] in fp32 or bf16, in panels; outputs that it lacks to the last one's end are 0."""
    outs, ins = weight.shape
    whole = F.pad(weight, (0, ins % 2 if weight.dtype == torch.bfloat16 else 0, 0, -outs % WIDTH)).contiguous()
    words = whole.view(torch.int32).numpy().view(np.uint32) if weight.dtype == torch.bfloat16 else whole.numpy()
    return np.ascontiguousarray(words.reshape(-1, WIDTH, words.shape[1]).swapaxes(1, 2))


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def _function(builder: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    kind = ir.FunctionType(result, arguments)
    return cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]


def _everywhere(builder: Any, number: Any, kind: Any) -> Any:
    """A vector of the one number."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(_WORDS, [0] * LANES))


class _Matrix(NamedTuple):
    """Where it begins, and the bytes from a row to the next."""

    begin: Any
    stride: Any


class _Columns:
    """Writes loops that multiply some vectors of a weight's columns with some rows, whose sums stay in registers."""

    def __init__(self, builder: Any, of_words: bool, weight: _Matrix, x: _Matrix, out: _Matrix) -> None:
        self._builder = builder
        self._of_words = of_words
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
            self._fetch(self._at(self._weight, step, offset + AHEAD, _WORD))
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

    def _fetch(self, address: Any) -> None:
        fetch = _function(self._builder, "llvm.prefetch.p0", ir.VoidType(), [address.type, _WORD, _WORD, _WORD])
        self._builder.call(fetch, [address, *(ir.Constant(_WORD, how) for how in (0, 3, 1))])  # to read, keep; data

    def _sums(self, row: int, vector: int) -> Any:
        return self._at(self._out, ir.Constant(_LONG, row), 4 * LANES * vector, _FLOATS)

    def _products(self, step: Any, sums: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """`sums`, as many vectors of each row as of weights, and what this step's inputs add to them."""
        builder = self._builder
        if self._of_words and NATIVE:
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
        add = _function(builder, f"llvm.fma.v{LANES}f32", _FLOATS, [_FLOATS] * 3)
        number = len(weights)
        inputs = [self._input(row, step, size, offset, _FLOATS) for row in range(len(sums) // number)]
        return [builder.call(add, [inputs[at // number], weights[at % number], one]) for at, one in enumerate(sums)]

    def _pairs(self, step: Any, sums: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Two inputs of each row in bf16 and their weights."""
        builder, pairs = self._builder, ir.VectorType(_BFloat(), 2 * LANES)
        add = _function(builder, "llvm.x86.avx512bf16.dpbf16ps.512", _FLOATS, [_FLOATS, pairs, pairs])
        number, words = len(weights), [builder.bitcast(word, pairs) for word in weights]
        inputs = [builder.bitcast(self._input(row, step, 4, 0, _WORDS), pairs) for row in range(len(sums) // number)]
        return [builder.call(add, [one, inputs[at // number], words[at % number]]) for at, one in enumerate(sums)]

    def _input(self, row: int, step: Any, size: int, offset: int, kind: Any) -> Any:
        builder = self._builder
        begin = builder.add(self._x.begin, builder.mul(step, ir.Constant(_LONG, size)))
        at = self._at(self._x._replace(begin=begin), ir.Constant(_LONG, row), offset, kind.element)
        return _everywhere(builder, builder.load(at, align=4), kind)

    def _at(self, matrix: _Matrix, row: Any, offset: int, kind: Any) -> Any:
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
        matrices = []
        for kind, value in zip(signature.args[4:], arguments[4:], strict=True):
            array = context.make_array(kind)(context, builder, value)
            stride, _ = cgutils.unpack_tuple(builder, array.strides)  # type: ignore[no-untyped-call]
            matrices.append(_Matrix(builder.ptrtoint(array.data, _LONG), stride))
        columns = _Columns(builder, weight.dtype == types.uint32, *matrices)
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


@intrinsic
def _rounded(context: Any, first: Any, second: Any) -> Any:  # noqa: ARG001
    """Two fp32 numbers rounded to bf16, to even where they lie between, the first in the word's lower half.

    What is no number stays none: its bits, which rounding could carry into a number's, are replaced.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        halves = []
        for number in arguments:
            bits = builder.bitcast(number, _WORD)
            sixteen = ir.Constant(_WORD, 16)
            odd = builder.and_(builder.lshr(bits, sixteen), ir.Constant(_WORD, 1))
            rounded = builder.add(bits, builder.add(odd, ir.Constant(_WORD, 0x7FFF)))
            is_none = builder.fcmp_unordered("uno", number, number)
            halves.append(builder.select(is_none, ir.Constant(_WORD, 0x7FC00000), rounded))
        upper = builder.and_(halves[1], ir.Constant(_WORD, 0xFFFF0000))
        return builder.or_(builder.lshr(halves[0], sixteen), upper)

    return types.uint32(types.float32, types.float32), generate


def _pairs(x: Array, weight: Weight) -> NDArray[np.uint32]:
    """The inputs in bf16, two to a word."""
    words = np.empty((x.shape[0], weight.shape[1]), np.uint32)
    for row in range(x.shape[0]):
        for step in range(x.shape[1] // 2):
            words[row, step] = _rounded(x[row, 2 * step], x[row, 2 * step + 1])
        if x.shape[1] % 2:
            words[row, -1] = _rounded(x[row, -1], np.float32(0))
    return words


def _even(x: Array, weight: Weight) -> Array:
    """The inputs, as many as there are weights."""
    if x.shape[1] == 2 * weight.shape[1]:
        return x
    padded = np.zeros((x.shape[0], 2 * weight.shape[1]), np.float32)
    padded[:, :-1] = x
    return padded


def _same(x: Array, weight: Weight) -> Array:  # noqa: ARG001
    return x


def _fed(x: Array, weight: Weight) -> Array | NDArray[np.uint32]:
    """`x` as a panel's loop reads it: one of the above, chosen when compiled; Python itself never comes here."""
    raise NotImplementedError


@overload(_fed, strict=False)
def _choose_fed(x: Any, weight: Any) -> Callable[..., Any]:  # noqa: ARG001
    if weight.dtype == types.float32:
        return _same
    return _pairs if NATIVE else _even


@inner
def add_product(x: Weight, weight: Weight, out: Array) -> None:
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


def _multiply(x: Array, weight: Weight, bias: Array, out: Array) -> None:
    fed, (rows, outs) = _fed(x, weight), out.shape
    for panel in prange(weight.shape[0]):
        begin, end = panel * WIDTH, min(outs, panel * WIDTH + WIDTH)
        for row in range(rows):
            for column in range(begin, end):
                out[row, column] = bias[column] if bias.shape[0] else np.float32(0)
        if begin + WIDTH == end:
            add_product(fed, weight[panel], out[:, begin:])
        else:
            part = np.zeros((rows, WIDTH), np.float32)[:, 0:]  # laid out as any part of `out`
            add_product(fed, weight[panel], part)
            for row in range(rows):
                for column in range(begin, end):
                    out[row, column] += part[row, column - begin]


_alone, _together = inner(_multiply), in_parallel(_multiply)


@inner
def multiply(x: Array, weight: Weight, bias: Array, out: Array, threads: int | None) -> None:
    """`out` [rows, outs] = `x` [rows, ins] @ `weight`.T + `bias` [outs], which may be empty.

    `threads`: None for one, which is decided when it is compiled: a team takes seconds to compile for.
    """
    if threads is None:
        _alone(x, weight, bias, out)
    else:
        _together(x, weight, bias, out)
