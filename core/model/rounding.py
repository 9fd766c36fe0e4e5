"""Inputs rounded to bf16, two to a word, as the processor's own products take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from core.model.compiling import Array, inner, intrinsic

_WORD = ir.IntType(32)


@intrinsic
def rounded(context: Any, first: Any, second: Any) -> Any:  # noqa: ARG001
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


@inner
def round_pairs(x: Array, words: NDArray[np.uint32]) -> None:
    """`x` [inputs] two to a word; 0 in `words` of which there are more."""
    for at in range(x.shape[0] // 2):
        words[at] = rounded(x[2 * at], x[2 * at + 1])
    if x.shape[0] % 2:
        words[x.shape[0] // 2] = rounded(x[-1], np.float32(0))
    words[(x.shape[0] + 1) // 2 :] = 0
