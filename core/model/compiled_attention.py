"""Attention over paged keys and values as compiled loops: neighbouring rows of a session read them together.

A row's sums are taken in the order of the tokens it sees, whoever reads along.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from core.model.compiling import Array, Integers, exponential, in_parallel, inner, total
from core.model.registers import ROWS_AT_ONCE, WIDTH, add_product


@inner
def _weigh(scores: Array, scale: np.float32) -> np.float32:
    """Make weights of one row's `scores`; returns their sum."""
    highest = scores[0]
    for at in range(1, scores.shape[0]):
        highest = max(highest, scores[at])
    for at in range(scores.shape[0]):
        scores[at] = exponential((scores[at] - highest) * scale)
    return total(scores.copy())


@inner
def _mix(weights: Array, values: Array, out: Array) -> None:
    """Add to `out` [rows, head_dim] a page's first `values` [tokens, head_dim] by their `weights` [rows, tokens]."""
    size = out.shape[1]
    whole = size - size % WIDTH
    add_product(weights, values[:, :whole], out)
    for row in range(out.shape[0] if whole < size else 0):
        for at in range(values.shape[0]):
            for i in range(whole, size):
                out[row, i] += weights[row, at] * values[at, i]


@inner
def _attend(queries: Array, keys: Array, values: Array, pages: Integers, seen: int, scores: Array, out: Array) -> None:
    """One head's `out` [rows, head_dim] for `queries` of a session's next rows, the first of which has `seen` tokens.

    Keys [pages, head_dim, tokens each], values [pages, tokens each, head_dim]; `scores` [rows, tokens of whole pages].
    """
    rows, each = queries.shape[0], values.shape[1]
    scores[:] = 0
    for begin in range(0, seen + rows - 1, each):
        add_product(queries, keys[pages[begin // each]][:, 0:], scores[:, begin:])
    scale = np.float32(1) / np.float32(math.sqrt(queries.shape[1]))
    totals = np.empty(rows, np.float32)
    for row in range(rows):
        totals[row] = _weigh(scores[row, : seen + row], scale)
    out[:] = 0
    shared = seen - seen % each  # tokens of pages that all rows see whole
    for begin in range(0, shared, each):
        _mix(scores[:, begin:], values[pages[begin // each]], out)
    for row in range(rows):
        for begin in range(shared, seen + row, each):
            last = min(each, seen + row - begin)
            _mix(scores[row : row + 1, begin:], values[pages[begin // each]][:last], out[row : row + 1])
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
    heads: Array, positions: Integers, pages: Integers, keys: Array, values: Array, num_heads: int, out: Array
) -> None:
    each = values.shape[2]
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
    keys: Array,
    values: Array,
    num_heads: int,
    threads: int | None,
    out: Array,
) -> None:
    """`out` [rows, heads, head_dim] for the queries, which come first of `heads` [rows, all heads, head_dim].

    The rows stand at `positions` in sessions with `pages` [rows, most]; keys [kv heads, pages, head_dim, tokens each],
    values [kv heads, pages, tokens each, head_dim]. `threads` as for products.
    """
    if threads is None:
        _alone(heads, positions, pages, keys, values, num_heads, out)
    else:
        _with_team(heads, positions, pages, keys, values, num_heads, out)
