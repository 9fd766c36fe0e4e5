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
from numpy.typing import ArrayLike, NDArray

from core.arrays import Array, Device, converted, namespace

SLACK = 1e-5  # of noise, over all that is lost in rounding it

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


def keys(places: ArrayLike) -> NDArray[np.int64]:
    """A word for each (seed, choice, position) [n, 3], from which those of its ids are counted on: int64 [n].

    Positions are absolute indices in the target's sequence. Arithmetic wraps. Keys are few, so NumPy makes them for any
    device.
    """
    seeds, choices, positions = np.asarray(places, np.int64).T
    mixed: NDArray[np.int64] = _mix(_mix(_mix(seeds + G) + choices * G + G) + positions * G + G)
    return mixed


def lanes(ids: Ids[Array], device: Device) -> Any:
    """What each id adds to the key of its row: int64 [ids]."""
    return _first_lanes(ids, device) if isinstance(ids, int) else (ids + 1) * G


def words(row_keys: Array, id_lanes: Array) -> Array:
    """The 64-bit words of keys and lanes, which broadcast."""
    mixed: Array = _mix(row_keys + id_lanes)
    return mixed


def gumbel(row_keys: Array, ids: Ids[Array]) -> Array:
    """Standard Gumbel noise of some ids at the place of each key: float32 [n, ids], always finite."""
    noise: Array = gumbel_of(words(row_keys[:, None], lanes(ids, row_keys.device)))
    return noise


def lowest_word(noise: NDArray[np.float32]) -> NDArray[np.uint64]:
    """A word, unsigned, under which there is no higher noise than this. It is as high as rounding lets it be."""
    upper_half = np.floor(np.exp(-np.exp(SLACK - noise.astype(np.float64))) * 2.0**32)
    words_at: NDArray[np.uint64] = np.minimum(upper_half, 2.0**32 - 1).astype(np.uint64) << np.uint64(32)
    return words_at


def gumbel_of(of_words: Array) -> Array:
    """Gumbel numbers of 64-bit words; only the upper half of each word is used.

    It is computed in float64: in float32 the upper end of u rounds to 1, which gives infinite noise.
    """
    xp = namespace(of_words.device)
    u = converted(_shift_right(of_words, 32), "float64")
    u += 0.5
    u *= 2.0**-32
    for _ in range(2):
        xp.log(u, out=u)
        xp.negative(u, out=u)
    noise: Array = converted(u, "float32")
    return noise


@lru_cache(maxsize=16)
def _first_lanes(count: int, device: Device) -> Any:
    return (namespace(device).arange(count, device=device) + 1) * G


def _mix(words: Array) -> Any:
    """The words mixed, in place."""
    words ^= _shift_right(words, 30)
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
