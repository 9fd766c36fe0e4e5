"""The noise of sampling (the dice): a Gumbel number for each (seed, choice, position, token), in any process the same.

Target and drafts use the same noise, so a draft with similar logits draws the very token that the target will draw.
There is no state: a number depends on its four coordinates alone, never on the order, the batch or the padding of the
vocabulary. NumPy and torch give the same numbers but for the last bit of one in a billion, where their logarithms in
float64 differ just where a float32 begins.

    bits(seed, choice, i, v) = mix(key + (v+1)*G)         key = mix(mix(mix(seed+G) + choice*G + G) + i*G + G)
    u = ((bits >> 32) + 0.5) / 2^32                       gumbel = -log(-log u)

all modulo 2^64, with `mix` the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from core.arrays import Array, Device, converted, namespace

ROWS_AT_ONCE = 16


Ids: TypeAlias = int | Array
"""The token ids of columns: the first so many, or an int64 array of them, ascending, on the device of the columns."""


def num_ids(ids: Ids[Array]) -> int:
    return ids if isinstance(ids, int) else len(ids)


def _signed(word: int) -> int:
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word


G = _signed(0x9E3779B97F4A7C15)
FIRST = _signed(0xBF58476D1CE4E5B9)
SECOND = _signed(0x94D049BB133111EB)


def bits(seed: int | Array, choice: int, positions: Array, ids: Ids[Array]) -> Array:
    """The 64-bit words of some ids at each position, int64 [n, ids]; arithmetic wraps.

    `positions` is int64 [n]: absolute indices in the target's sequence. `seed` is one number, or an int64 array that
    broadcasts with `positions`.
    """
    lanes = _lanes(ids, positions.device) if isinstance(ids, int) else (ids + 1) * G
    words: Array = _mix(key(seed, choice, positions)[..., None] + lanes)
    return words


def gumbel(seed: int | Array, choice: int, positions: Array, ids: Ids[Array]) -> Array:
    """Standard Gumbel noise, float32 [n, ids], always finite; arguments as for `bits`."""
    return gumbel_of(bits(seed, choice, positions, ids))


class NoiseWindow:
    """The noise of one generation, made for many positions at a time: single rows would cost three times as much.

    Positions rise from call to call, except for the few that a rejection takes back. Ids and device stay the same.
    """

    def __init__(self, seed: int, choice: int) -> None:
        self._seed = seed
        self._choice = choice
        self._first = 0
        self._made: Any = None

    def rows(self, first: int, count: int, ids: Ids[Array], device: Device) -> Any:
        """Noise of positions `first .. first + count - 1`, float32 [count, ids], on the device; read only."""
        xp, window, width = namespace(device), self._made, num_ids(ids)
        if window is None or window.shape[1] != width or not self._first <= first <= self._first + len(window):
            self._first, window = first, xp.empty((0, width), dtype=xp.float32, device=device)
        missing = first + count - self._first - len(window)
        if missing > 0:
            begin = self._first + len(window)
            positions = xp.arange(begin, begin + max(missing, ROWS_AT_ONCE), device=device)
            forgotten = max(0, first - ROWS_AT_ONCE - self._first)
            window = xp.concatenate([window[forgotten:], gumbel(self._seed, self._choice, positions, ids)])
            self._first += forgotten
        self._made = window
        return window[first - self._first :][:count]


def gumbel_of(words: Array) -> Array:
    """Gumbel numbers of 64-bit words; only the upper half of each word is used.

    It is computed in float64: in float32 the upper end of u rounds to 1, which gives infinite noise.
    """
    xp = namespace(words.device)
    u = converted(_shift_right(words, 32), "float64")
    u += 0.5
    u *= 2.0**-32
    for _ in range(2):
        xp.log(u, out=u)
        xp.negative(u, out=u)
    noise: Array = converted(u, "float32")
    return noise


def key(seed: int | Array, choice: int, positions: Array) -> Array:
    """One word per position; the words of its row are counted on from it."""
    stream = _stream_of(seed, choice) if isinstance(seed, int) else _stream(seed, choice)
    words: Array = _mix(positions * G + G + stream)
    return words


@lru_cache(maxsize=4096)
def _stream_of(seed: int, choice: int) -> int:
    return int(_stream(np.array([seed]), choice)[0])


def _stream(seeds: Array, choice: int) -> Any:
    return _mix(_mix(seeds + G) + _signed((choice + 1) * G))


@lru_cache(maxsize=16)
def _lanes(count: int, device: Device) -> Any:
    return (namespace(device).arange(count, device=device) + 1) * G


def _mix(words: Array) -> Any:
    words = words ^ _shift_right(words, 30)
    words *= FIRST
    words ^= _shift_right(words, 27)
    words *= SECOND
    words ^= _shift_right(words, 31)
    return words


def _shift_right(words: Array, count: int) -> Any:
    # int64 shifts keep the sign; the mask makes the shift logical
    shifted = words >> count
    shifted &= (1 << (64 - count)) - 1
    return shifted
