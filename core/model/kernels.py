"""The decoder as loops that numba compiles: a pass is one call, where torch would take some twenty for each layer.

Arrays in, arrays out: fp32 but for weights and what the cache holds, sizes by their shapes; one without elements stands
for what a model does not have. What is computed of a row is computed alike whatever else is in the pass.
"""

from __future__ import annotations

import math

import numpy as np

from core.model.compiled_attention import Held, attend, keep
from core.model.compiling import Array, Doubles, Integers, entry, exponential, inner, kept_of, total
from core.model.pages import PAGE_SIZE
from core.model.products import WORDS, Weight, multiply

Layers = tuple[Array, Weight, Array, Array, Weight, Array, Array, Weight, Array, Weight, Array]
"""Of all layers [layers, ...]: norm, qkv, its bias, qk_norm, out, its bias; the MLP's norm, gate_up and down alike."""
Cache = Held
"""Of all layers [layers, 2 * kv heads, pages, what one holds]: the keys' heads come before the values'."""
Model = tuple[Array, Array, Array, np.float32, int, int, Layers, Array, Weight, Array]
"""Embedding, cos and sin [context, head_dim], eps, how many heads and gates; layers; the head's norm, weight, bias."""


@inner
def _normalise(x: Array, weight: Array, eps: np.float32, out: Array) -> None:
    """`out` = `x / sqrt(mean(x^2) + eps) * weight`, all [size]."""
    scale = np.float32(1) / math.sqrt(total(x * x) / np.float32(x.shape[0]) + eps)
    for i in range(x.shape[0]):
        out[i] = x[i] * scale * weight[i]


@inner
def _normalise_all(x: Array, weight: Array, eps: np.float32, out: Array) -> None:
    for row in range(x.shape[0]):
        _normalise(x[row], weight, eps, out[row])


@inner
def _turn(head: Array, cos: Array, sin: Array) -> None:
    """Rotate the pairs i and i + head_dim / 2 of `head` in place."""
    half = head.shape[0] // 2
    for i in range(half):
        low, high = head[i], head[half + i]
        head[i] = low * cos[i] + high * sin[i]
        head[half + i] = high * cos[half + i] + low * sin[half + i]


@inner
def _place(
    heads: Array,
    positions: Integers,
    pages: Integers,
    keys: Held,
    values: Held,
    cos: Array,
    sin: Array,
    eps: np.float32,
    qk_norm: Array,
) -> None:
    """Norm and rotate queries and keys of `heads` [rows, heads + 2 * kv heads, head_dim]; store keys and values."""
    num_keys, each = keys.shape[0], keys.shape[3]
    num_rotated = heads.shape[1] - num_keys
    for row in range(heads.shape[0]):
        at = positions[row]
        for head in range(num_rotated):
            if qk_norm.shape[0]:
                _normalise(heads[row, head], qk_norm[head], eps, heads[row, head])
            _turn(heads[row, head], cos[at], sin[at])
        page, place = pages[row, at // each], at % each
        for own in range(num_keys):
            key, value = heads[row, num_rotated - num_keys + own], heads[row, num_rotated + own]
            keep(key, value, place, keys[own, page], values[own, page])


@inner
def _halves(layer: Held, head_dim: int) -> tuple[Held, Held]:
    """A layer's keys and values, as attention reads them."""
    heads, num_pages, size = layer.shape[0] // 2, layer.shape[1], layer.shape[2]
    keys = layer[:heads].reshape(heads, num_pages, size // PAGE_SIZE, PAGE_SIZE)
    return keys, layer[heads:].reshape(heads, num_pages, size // head_dim, head_dim)


@inner
def _attention(
    x: Array,
    positions: Integers,
    pages: Integers,
    keys: Held,
    values: Held,
    cos: Array,
    sin: Array,
    eps: np.float32,
    num_heads: int,
    threads: int | None,
    norm: Array,
    qkv: Weight,
    qkv_bias: Array,
    qk_norm: Array,
    out: Weight,
    out_bias: Array,
) -> None:
    """Add a layer's attention to `x` [rows, hidden], and the rows' keys and values to the cache."""
    rows, num_keys, size = x.shape[0], keys.shape[0], values.shape[3]
    change = np.empty_like(x)
    _normalise_all(x, norm, eps, change)
    projected = np.empty((rows, (num_heads + 2 * num_keys) * size), np.float32)
    multiply(change, qkv, qkv_bias, projected, threads)
    heads, attended = projected.reshape(rows, -1, size), np.empty((rows, num_heads, size), np.float32)
    _place(heads, positions, pages, keys, values, cos, sin, eps, qk_norm)
    attend(heads, positions, pages, keys, values, num_heads, threads, attended)
    multiply(attended.reshape(rows, -1), out, out_bias, change, threads)
    x += change


@inner
def _mlp(
    x: Array,
    eps: np.float32,
    size: int,
    threads: int | None,
    norm: Array,
    gate_up: Weight,
    gate_up_bias: Array,
    down: Weight,
    down_bias: Array,
) -> None:
    """Add a layer's gated MLP, with `size` gates, to `x` [rows, hidden]."""
    rows = x.shape[0]
    change = np.empty_like(x)
    _normalise_all(x, norm, eps, change)
    both, active = np.empty((rows, 2 * size), np.float32), np.empty((rows, size), np.float32)
    multiply(change, gate_up, gate_up_bias, both, threads)
    for row in range(rows):
        gates, ups, gated = both[row, :size], both[row, size:], active[row]
        for i in range(size):
            gated[i] = gates[i] / (np.float32(1) + exponential(-gates[i])) * ups[i]
    multiply(active, down, down_bias, change, threads)
    x += change


@entry
def forward(
    tokens: Integers,
    positions: Integers,
    pages: Integers,
    wanted: Integers,
    cache: Cache,
    model: Model,
    threads: int | None,
    logits: Array,
) -> None:
    """A pass over rows that stand at `positions` [rows] in sessions with `pages` [rows, most].

    Adds to `cache`; leaves the `logits` [wanted, ids] of some.
    """
    embedding, cos, sin, eps, num_heads, num_gates, layers, norm, head, head_bias = model
    norms, qkv, qkv_bias, qk_norm, out, out_bias, mlp_norms, gate_up, gate_up_bias, down, down_bias = layers
    x = np.empty((tokens.shape[0], embedding.shape[1]), np.float32)
    for row in range(tokens.shape[0]):
        x[row] = embedding[tokens[row]]
    for at in range(cache.shape[0]):
        keys, values = _halves(cache[at], cos.shape[1])
        weights = norms[at], qkv[at], qkv_bias[at], qk_norm[at], out[at], out_bias[at]
        _attention(x, positions, pages, keys, values, cos, sin, eps, num_heads, threads, *weights)
        _mlp(x, eps, num_gates, threads, mlp_norms[at], gate_up[at], gate_up_bias[at], down[at], down_bias[at])
    chosen, normed = x[wanted], np.empty((wanted.shape[0], x.shape[1]), np.float32)
    _normalise_all(chosen, norm, eps, normed)
    multiply(normed, head, head_bias, logits, threads)


@inner
def _best(scores: Array, found: Integers) -> float:
    """The ids of the highest `scores` in order, -1 for none but the first; returns by how much the first leads."""
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
    if found[0] < 0:  # nothing but NaN, of which to be sure would be wrong
        found[0] = 0
        return 0.0
    return float(highest[0]) - float(highest[1]) if most > 1 else np.inf


@entry
def draw(
    tokens: Integers,
    positions: Integers,
    pages: Integers,
    ends: Integers,
    cache: Cache,
    model: Model,
    threads: int | None,
    num_ids: int,
    noise: Array,
    edges: Doubles,
    chances: Doubles,
    survivals: Doubles,
    worths: Doubles,
    enough: int,
    drawn: Integers,
    leads: Doubles,
) -> int:
    """Passes in which lines draw a token each and feed it to the next, the first over rows of which they end at `ends`.

    What is `drawn` [steps, lines, the best few] and `leads` [steps, lines] are of as many passes as are returned: all,
    or those until `enough` lines have come to their endings, whose `survivals` are overwritten.
    """
    steps, lines, _ = drawn.shape
    logits = np.empty((lines, model[0].shape[0]), np.float32)
    for step in range(steps):
        forward(tokens, positions, pages, ends, cache, model, threads, logits)
        ended = 0
        for line in range(lines):
            scores = logits[line, :num_ids]
            if noise.shape[0]:
                scores += noise[step, line]
            lead = leads[step, line] = _best(scores, drawn[step, line])
            survivals[line] *= chances[np.searchsorted(edges, lead, side="right")]
            ended += survivals[line] < worths[line]
        if ended >= enough:
            return step + 1
        tokens, positions, pages = drawn[step, :, 0].copy(), positions[ends] + 1, pages[ends]
        ends = np.arange(lines)
    return int(steps)


def compile_for(weights: str, threads: int | None) -> None:
    """Compile what is called from Python, or read it from where it is kept, for weights of this numpy dtype.

    Nothing else is ever compiled: a call with other types is a TypeError, where numba would compile for a minute.
    """
    vector, matrix, cube = "float32[::1]", "float32[:, ::1]", "float32[:, :, ::1]"
    stack, weight = f"{weights}[:, :, :, ::1]", f"{weights}[:, :, ::1]"
    layers = (matrix, stack, matrix, cube, stack, matrix, matrix, stack, matrix, stack, matrix)
    sizes, head = "float32, int64, int64", f"{vector}, {weight}, {vector}"
    model = f"Tuple(({matrix}, {matrix}, {matrix}, {sizes}, Tuple(({', '.join(layers)})), {head}))"
    rows, team = "int64[::1], int64[::1], int64[:, ::1], int64[::1]", "none" if threads is None else "int64"
    held = "float32" if weights == "float32" else "uint32"
    always = f"{rows}, {held}[:, :, :, ::1], {model}, {team}"
    ending = ", ".join(4 * ["float64[::1]"])
    with kept_of(forward):
        for function in (forward, draw):
            function.disable_compile(False)
        forward.compile(f"void({always}, {matrix})")
        draw.compile(f"int64({always}, int64, {cube}, {ending}, int64, int64[:, :, ::1], float64[:, ::1])")
        for function in (forward, draw):
            function.disable_compile()


if __name__ == "__main__":  # what targets and drafts need that run on one thread
    for number in (np.float32, WORDS):
        compile_for(np.dtype(number).name, None)
