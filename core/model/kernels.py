"""The decoder of a small model as loops that numba compiles: there each call of torch takes longer than it computes.

Arrays in, arrays out: fp32, C order, sizes by their shapes; one without elements stands for what a model does not have.
Compiled once for a processor, in some seconds, and kept beside this file. Sums are taken in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float32]
Integers = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., object])

_V, _M = "float32[::1]", "float32[:, ::1]"
_ANY_ORDER = {"reassoc", "contract", "nsz"}  # of sums; infinities stay what they are
_ROWS_AT_ONCE = 4  # that share what is read of a weight


def _inner(function: Function) -> Function:
    return cast(Function, njit(fastmath=_ANY_ORDER, nogil=True)(function))


def _entry(*arguments: str) -> Callable[[Function], Function]:
    """For what is called from Python: compiled, or read from where it is kept, when this module is imported."""
    signature = f"void({','.join(arguments)})"
    return cast(Callable[[Function], Function], njit(signature, fastmath=_ANY_ORDER, nogil=True, cache=True))


@_inner
def _multiply(x: Array, weight: Array, bias: Array, out: Array) -> None:
    """`out` [rows, outs] = `x` [rows, ins] @ `weight` [outs, ins].T + `bias` [outs]."""
    rows, size = x.shape
    whole = rows - rows % _ROWS_AT_ONCE
    for column in range(weight.shape[0]):
        added = bias[column] if bias.shape[0] else np.float32(0)
        for row in range(0, whole, _ROWS_AT_ONCE):
            first = second = third = fourth = np.float32(0)
            for i in range(size):
                first += weight[column, i] * x[row, i]
                second += weight[column, i] * x[row + 1, i]
                third += weight[column, i] * x[row + 2, i]
                fourth += weight[column, i] * x[row + 3, i]
            out[row, column] = first + added
            out[row + 1, column] = second + added
            out[row + 2, column] = third + added
            out[row + 3, column] = fourth + added
        for row in range(whole, rows):
            total = np.float32(0)
            for i in range(size):
                total += weight[column, i] * x[row, i]
            out[row, column] = total + added


@_inner
def _normalise(x: Array, weight: Array, eps: float, out: Array) -> None:
    """`out` = `x / sqrt(mean(x^2) + eps) * weight`, all [size]."""
    squares = np.float32(0)
    for i in range(x.shape[0]):
        squares += x[i] * x[i]
    scale = np.float32(1) / math.sqrt(squares / np.float32(x.shape[0]) + eps)
    for i in range(x.shape[0]):
        out[i] = x[i] * scale * weight[i]


@_inner
def _turn(head: Array, cos: Array, sin: Array) -> None:
    """Rotate the pairs i and i + head_dim / 2 of `head` in place."""
    half = head.shape[0] // 2
    for i in range(half):
        low, high = head[i], head[half + i]
        head[i] = low * cos[i] + high * sin[i]
        head[half + i] = high * cos[half + i] + low * sin[half + i]


@_inner
def _attend(query: Array, keys: Array, values: Array, pages: Integers, seen: int, scores: Array, out: Array) -> None:
    """One head's `out` [head_dim] for its `query`, of `seen` keys and values [pages, tokens each, head_dim]."""
    each, size = keys.shape[1], keys.shape[2]
    scale = np.float32(1) / math.sqrt(np.float32(size))
    highest = np.float32(-np.inf)
    for begin in range(0, seen, each):
        page = pages[begin // each]
        for place in range(min(each, seen - begin)):
            score = np.float32(0)
            for i in range(size):
                score += query[i] * keys[page, place, i]
            scores[begin + place] = score * scale
            highest = max(highest, score * scale)
    total = np.float32(0)
    for place in range(seen):
        scores[place] = math.exp(scores[place] - highest)
        total += scores[place]
    for i in range(size):
        out[i] = np.float32(0)
    for begin in range(0, seen, each):
        page = pages[begin // each]
        for place in range(min(each, seen - begin)):
            weight = scores[begin + place] / total
            for i in range(size):
                out[i] += weight * values[page, place, i]


@_entry(_M, "int64[::1]", "int64[:, ::1]", "float32[:, :, :, ::1]", _M, _M, "float32", _V, _M, _V, _M, _M, _V)
def attention(
    x: Array,
    positions: Integers,
    pages: Integers,
    cache: Array,
    cos: Array,
    sin: Array,
    eps: float,
    norm: Array,
    qkv: Array,
    qkv_bias: Array,
    qk_norm: Array,
    out: Array,
    out_bias: Array,
) -> None:
    """Add a layer's attention to `x` [rows, hidden], and the rows' keys and values to the cache.

    `pages` [rows, most] are those of each row's session; `cache` [2 * kv heads, pages, tokens each, head_dim], `cos`
    [context, head_dim] and `sin` alike.
    """
    rows, num_keys, each, size = x.shape[0], cache.shape[0] // 2, cache.shape[2], cache.shape[3]
    num_heads = out.shape[1] // size
    change = np.empty_like(x)
    for row in range(rows):
        _normalise(x[row], norm, eps, change[row])
    projected = np.empty((rows, qkv.shape[0]), np.float32)
    _multiply(change, qkv, qkv_bias, projected)
    heads = projected.reshape(rows, -1, size)
    for row in range(rows):
        at = positions[row]
        for head in range(num_heads + num_keys):
            if qk_norm.shape[0]:
                _normalise(heads[row, head], qk_norm[head], eps, heads[row, head])
            _turn(heads[row, head], cos[at], sin[at])
        page, place = pages[row, at // each], at % each
        for head in range(2 * num_keys):
            for i in range(size):
                cache[head, page, place, i] = heads[row, num_heads + head, i]
    attended, scores = np.empty((rows, num_heads * size), np.float32), np.empty(cos.shape[0], np.float32)
    for row in range(rows):
        for head in range(num_heads):
            keys = head * num_keys // num_heads
            part = attended[row, head * size : (head + 1) * size]
            seen = positions[row] + 1
            _attend(heads[row, head], cache[keys], cache[num_keys + keys], pages[row], seen, scores, part)
    _multiply(attended, out, out_bias, change)
    x += change


@_entry(_M, "float32", _V, _M, _V, _M, _V)
def mlp(x: Array, eps: float, norm: Array, gate_up: Array, gate_up_bias: Array, down: Array, down_bias: Array) -> None:
    """Add a layer's gated MLP to `x` [rows, hidden]."""
    rows, size = x.shape[0], down.shape[1]
    change = np.empty_like(x)
    for row in range(rows):
        _normalise(x[row], norm, eps, change[row])
    both, active = np.empty((rows, 2 * size), np.float32), np.empty((rows, size), np.float32)
    _multiply(change, gate_up, gate_up_bias, both)
    for row in range(rows):
        for i in range(size):
            gate = both[row, i]
            active[row, i] = gate / (np.float32(1) + math.exp(-gate)) * both[row, size + i]
    _multiply(active, down, down_bias, change)
    x += change


@_entry(_M, "float32", _V, _M, _V, _M)
def head(x: Array, eps: float, norm: Array, weight: Array, bias: Array, logits: Array) -> None:
    """`logits` [rows, vocabulary] of `x` [rows, hidden]."""
    normed = np.empty_like(x)
    for row in range(x.shape[0]):
        _normalise(x[row], norm, eps, normed[row])
    _multiply(normed, weight, bias, logits)
