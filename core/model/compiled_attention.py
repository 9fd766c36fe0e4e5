"""Attention over paged keys and values as compiled loops: neighbouring rows of a session read them together.

A row's sums are taken in the order of the tokens it sees, whoever reads along.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange, types
from numba.extending import overload
from numpy.typing import NDArray

from core.model.compiling import Array, Integers, exponential, in_parallel, inner, total
from core.model.registers import ROWS_AT_ONCE, WIDTH, add_product
from core.model.rounding import rounded

Held = Array | NDArray[np.uint32]
"""Keys or values in pages, of each kv head [pages, ...]: keys [head_dim, tokens each], values [tokens each, head_dim].

In fp32, or two in a word in bf16: of keys two of the head's dimensions, of values those of two tokens.
"""
LOWER = np.uint32(0xFFFF)  # of a word: what comes first


@inner
def _weigh(scores: Array, scale: np.float32) -> np.float32:
    """Make weights of one row's `scores`; returns their sum."""
    highest = scores[0]
    for at in range(1, scores.shape[0]):
        highest = max(highest, scores[at])
    for at in range(scores.shape[0]):
        scores[at] = exponential((scores[at] - highest) * scale)
    return total(scores.copy())


def _keep_numbers(key: Array, value: Array, place: int, keys: Array, values: Array) -> None:
    for i in range(key.shape[0]):
        keys[i, place] = key[i]
        values[place, i] = value[i]


def _keep_words(key: Array, value: Array, place: int, keys: NDArray[np.uint32], values: NDArray[np.uint32]) -> None:
    for i in range(keys.shape[0]):
        keys[i, place] = rounded(key[2 * i], key[2 * i + 1])
    line, nothing = values[place // 2], np.float32(0)
    for i in range(value.shape[0]):
        if place % 2:
            line[i] = rounded(nothing, value[i]) | (line[i] & LOWER)
        else:
            line[i] = rounded(value[i], nothing)


def keep(key: Array, value: Array, place: int, keys: Held, values: Held) -> None:
    """Put a token's [head_dim] in its place in a page. Places are filled in order, whatever they held before."""
    raise NotImplementedError


@overload(keep, strict=False)
def _choose_keep(key: Any, value: Any, place: Any, keys: Any, values: Any) -> Callable[..., Any]:  # noqa: ARG001
    return _keep_numbers if keys.dtype == types.float32 else _keep_words


@inner
def _add_lines(weights: Array, lines: NDArray[Any], out: Array) -> None:
    """Add `weights` [rows, tokens] @ `lines` [tokens, head_dim], or of two tokens each, to `out` [rows, head_dim]."""
    rows, size = out.shape
    whole = size - size % WIDTH
    add_product(weights, lines[:, :whole], out)
    if whole < size:
        rest, part = np.zeros((lines.shape[0], WIDTH), lines.dtype), np.zeros((rows, WIDTH), np.float32)
        rest[:, : size - whole] = lines[:, whole:]
        part[:, : size - whole] = out[:, whole:]
        add_product(weights, rest[:, 0:], part[:, 0:])
        out[:, whole:] = part[:, : size - whole]


def _mix_numbers(weights: Array, values: Array, tokens: int, out: Array) -> None:
    _add_lines(weights, values[:tokens], out)


def _mix_words(weights: Array, values: NDArray[np.uint32], tokens: int, out: Array) -> None:
    pairs, odd = divmod(tokens, 2)
    if pairs:
        _add_lines(weights, values[:pairs], out)
    if odd:  # what shares its words may be a later token's
        alone = np.zeros((weights.shape[0], 2), np.float32)
        alone[:, 0] = weights[:, tokens - 1]
        _add_lines(alone[:, 0:], (values[pairs : pairs + 1] & LOWER)[:, 0:], out)


def _mix(weights: Array, values: Held, tokens: int, out: Array) -> None:
    """Add to `out` [rows, head_dim] what a page's first `tokens` hold by their `weights` [rows, tokens and more]."""
    raise NotImplementedError


@overload(_mix, strict=False)
def _choose_mix(weights: Any, values: Any, tokens: Any, out: Any) -> Callable[..., Any]:  # noqa: ARG001
    return _mix_numbers if values.dtype == types.float32 else _mix_words


@inner
def _attend(queries: Array, keys: Held, values: Held, pages: Integers, seen: int, scores: Array, out: Array) -> None:
    """One head's `out` [rows, head_dim] for `queries` of a session's next rows, the first of which has `seen` tokens.

    Keys and values [pages, ...]; `scores` [rows, tokens of whole pages].
    """
    rows, each = queries.shape[0], keys.shape[2]
    scores[:] = 0
    for begin in range(0, seen + rows - 1, each):
        columns = min(each, (seen + rows - 1 - begin + WIDTH - 1) // WIDTH * WIDTH)
        add_product(queries, keys[pages[begin // each]][:, :columns], scores[:, begin:])
    scale = np.float32(1) / np.float32(math.sqrt(queries.shape[1]))
    totals = np.empty(rows, np.float32)
    for row in range(rows):
        totals[row] = _weigh(scores[row, : seen + row], scale)
    out[:] = 0
    shared = seen - seen % each  # tokens of pages that all rows see whole
    for begin in range(0, shared, each):
        _mix(scores[:, begin:], values[pages[begin // each]], each, out)
    for row in range(rows):
        for begin in range(shared, seen + row, each):
            last = min(each, seen + row - begin)
            _mix(scores[row : row + 1, begin:], values[pages[begin // each]], last, out[row : row + 1])
        for i in range(out.shape[1]):
            out[row, i] /= totals[row]


@inner
def _neighbours(positions: Integers, pages: Integers, each: int) -> Integers:
    """Where neighbouring rows begin that are a session's next, and then how many rows there are."""
    begins = [0]
    for row in range(1, positions.shape[0]):
        seen = positions[row] // each + 1
        follows = positions[row] == positions[row - 1] + 1 and row - begins[-1] < ROWS_AT_ONCE
        if not (follows and (pages[row, :seen] == pages[row - 1, :seen]).all()):
            begins.append(row)
    begins.append(positions.shape[0])
    return np.array(begins)


def _attend_all(
    heads: Array, positions: Integers, pages: Integers, keys: Held, values: Held, num_heads: int, out: Array
) -> None:
    each = keys.shape[3]
    begins = _neighbours(positions, pages, each)
    for unit in prange((begins.shape[0] - 1) * num_heads):
        part, head = unit // num_heads, unit % num_heads
        begin, end, own = begins[part], begins[part + 1], head * keys.shape[0] // num_heads
        scores = np.empty((end - begin, (positions[end - 1] // each + 1) * each), np.float32)
        queries, mixed = heads[begin:end, head], out[begin:end, head]
        _attend(queries, keys[own], values[own], pages[begin], positions[begin] + 1, scores, mixed)


_alone, _with_team = inner(_attend_all), in_parallel(_attend_all)


@inner
def attend(
    heads: Array,
    positions: Integers,
    pages: Integers,
    keys: Held,
    values: Held,
    num_heads: int,
    threads: int | None,
    out: Array,
) -> None:
    """`out` [rows, heads, head_dim] for the queries, which come first of `heads` [rows, all heads, head_dim].

    The rows stand at `positions` in sessions with `pages` [rows, most]; keys and values are a layer's. `threads` as for
    products.
    """
    if threads is None:
        _alone(heads, positions, pages, keys, values, num_heads, out)
    else:
        _with_team(heads, positions, pages, keys, values, num_heads, out)
