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
Doubles = NDArray[np.float64]
Layers = tuple[Array, Array, Array, Array, Array, Array, Array, Array, Array, Array, Array]
"""Of all layers [layers, ...]: norm, qkv, its bias, qk_norm, out, its bias; the MLP's norm, gate_up and down alike."""
Model = tuple[Array, Array, Array, np.float32, Layers, Array, Array, Array]
"""The embedding, cos and sin [context, head_dim], eps, the layers, and the head's norm, weight and bias."""
Function = TypeVar("Function", bound=Callable[..., object])

_V, _M, _3D = "float32[::1]", "float32[:, ::1]", "float32[:, :, ::1]"
_LAYERS = f"Tuple(({', '.join((_M, _3D, _M, _3D, _3D, _M, _M, _3D, _M, _3D, _M))}))"
_MODEL = f"Tuple(({', '.join((_M, _M, _M, 'float32', _LAYERS, _V, _M, _V))}))"
_PASS = f"int64[::1], int64[::1], int64[:, ::1], int64[::1], float32[:, :, :, :, ::1], {_MODEL}"
_ENDING = ", ".join(4 * ("float64[::1]",))
_ANY_ORDER = {"reassoc", "contract", "nsz"}  # of sums; infinities stay what they are
_ROWS_AT_ONCE = 4  # that share what is read of a weight


def _inner(function: Function) -> Function:
    return cast(Function, njit(fastmath=_ANY_ORDER, nogil=True)(function))


def _entry(signature: str) -> Callable[[Function], Function]:
    """For what is called from Python: compiled, or read from where it is kept, when this module is imported."""
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
def _normalise(x: Array, weight: Array, eps: np.float32, out: Array) -> None:
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


@_inner
def _attention(
    x: Array,
    positions: Integers,
    pages: Integers,
    cache: Array,
    cos: Array,
    sin: Array,
    eps: np.float32,
    norm: Array,
    qkv: Array,
    qkv_bias: Array,
    qk_norm: Array,
    out: Array,
    out_bias: Array,
) -> None:
    """Add a layer's attention to `x` [rows, hidden], and the rows' keys and values to the cache."""
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


@_inner
def _mlp(
    x: Array, eps: np.float32, norm: Array, gate_up: Array, gate_up_bias: Array, down: Array, down_bias: Array
) -> None:
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


@_entry(f"void({_PASS}, {_M})")
def forward(
    tokens: Integers,
    positions: Integers,
    pages: Integers,
    wanted: Integers,
    cache: Array,
    model: Model,
    logits: Array,
) -> None:
    """A pass over rows that stand at `positions` [rows] in sessions with `pages` [rows, most].

    Adds to `cache` [layers, 2 * kv heads, pages, tokens each, head_dim]; leaves the `logits` [wanted, ids] of some.
    """
    embedding, cos, sin, eps, layers, norm, head, head_bias = model
    norms, qkv, qkv_bias, qk_norm, out, out_bias, mlp_norms, gate_up, gate_up_bias, down, down_bias = layers
    x = np.empty((tokens.shape[0], embedding.shape[1]), np.float32)
    for row in range(tokens.shape[0]):
        x[row] = embedding[tokens[row]]
    for at in range(cache.shape[0]):
        weights = norms[at], qkv[at], qkv_bias[at], qk_norm[at], out[at], out_bias[at]
        _attention(x, positions, pages, cache[at], cos, sin, eps, *weights)
        _mlp(x, eps, mlp_norms[at], gate_up[at], gate_up_bias[at], down[at], down_bias[at])
    normed = np.empty((wanted.shape[0], x.shape[1]), np.float32)
    for row in range(wanted.shape[0]):
        _normalise(x[wanted[row]], norm, eps, normed[row])
    _multiply(normed, head, head_bias, logits)


@_inner
def _best(scores: Array, found: Integers) -> float:
    """The ids of the highest `scores` in order, -1 for none; returns by how much the first leads."""
    most = found.shape[0]
    highest = np.full(most, np.float32(-np.inf))
    found[:] = -1
    for token in range(scores.shape[0]):
        if scores[token] > highest[most - 1]:
            rank = most - 1
            while rank > 0 and scores[token] > highest[rank - 1]:
                highest[rank], found[rank] = highest[rank - 1], found[rank - 1]
                rank -= 1
            highest[rank], found[rank] = scores[token], token
    return float(highest[0]) - float(highest[1]) if most > 1 else np.inf


@_entry(f"int64({_PASS}, int64, {_3D}, {_ENDING}, int64[:, :, ::1], float64[:, ::1])")
def draw(
    tokens: Integers,
    positions: Integers,
    pages: Integers,
    ends: Integers,
    cache: Array,
    model: Model,
    num_ids: int,
    noise: Array,
    edges: Doubles,
    chances: Doubles,
    survivals: Doubles,
    worths: Doubles,
    drawn: Integers,
    leads: Doubles,
) -> int:
    """Passes in which lines draw a token each and feed it to the next, the first over rows of which they end at `ends`.

    What is `drawn` [steps, lines, the best few] and `leads` [steps, lines] are of as many passes as are returned: all,
    or those until a line has come to its ending, whose `survivals` are overwritten.
    """
    steps, lines, _ = drawn.shape
    logits = np.empty((lines, model[6].shape[0]), np.float32)
    for step in range(steps):
        forward(tokens, positions, pages, ends, cache, model, logits)
        ended = False
        for line in range(lines):
            scores = logits[line, :num_ids]
            if noise.shape[0]:
                scores += noise[step, line]
            lead = leads[step, line] = _best(scores, drawn[step, line])
            survivals[line] *= chances[np.searchsorted(edges, lead, side="right")]
            ended = ended or survivals[line] < worths[line]
        if ended:
            return step + 1
        tokens, positions, pages = drawn[step, :, 0].copy(), positions[ends] + 1, pages[ends]
        ends = np.arange(lines)
    return int(steps)
