"""The noise of sampling (the dice): a Gumbel number for each (seed, choice, position, token), in any process the same.

Target and drafts use the same noise, so a draft with similar logits draws the very token that the target will draw.
There is no state: a number depends on its four coordinates alone, never on the order, the batch or the padding of the
vocabulary.

    bits(seed, choice, i, v) = mix(key + (v+1)*G)         key = mix(mix(mix(seed+G) + choice*G + G) + i*G + G)
    u = ((bits >> 32) + 0.5) / 2^32                       gumbel = -log(-log u)

all modulo 2^64, with `mix` the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

from functools import lru_cache

import torch

ROWS_AT_ONCE = 16


Ids = int | torch.Tensor
"""The token ids of columns: the first so many, or an int64 tensor of them, ascending, on the device of the columns."""


def num_ids(ids: Ids) -> int:
    return ids if isinstance(ids, int) else len(ids)


def _signed(word: int) -> int:
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word


G = _signed(0x9E3779B97F4A7C15)
FIRST = _signed(0xBF58476D1CE4E5B9)
SECOND = _signed(0x94D049BB133111EB)


def bits(seed: int | torch.Tensor, choice: int, positions: torch.Tensor, ids: Ids) -> torch.Tensor:
    """The 64-bit words of some ids at each position, int64 [n, ids]; arithmetic wraps.

    `positions` is int64 [n]: absolute indices in the target's sequence. `seed` is one number, or an int64 tensor that
    broadcasts with `positions`.
    """
    lanes = _lanes(ids, positions.device) if isinstance(ids, int) else (ids + 1) * G
    words = key(seed, choice, positions)[..., None] + lanes
    return _mix(words)


def gumbel(seed: int | torch.Tensor, choice: int, positions: torch.Tensor, ids: Ids) -> torch.Tensor:
    """Standard Gumbel noise, float32 [n, ids], always finite; arguments as for `bits`."""
    return gumbel_of(bits(seed, choice, positions, ids))


class NoiseWindow:
    """The noise of one generation, made for many positions at a time: single rows would cost three times as much.

    Positions rise from call to call, except for the few that a rejection takes back. The ids stay the same.
    """

    def __init__(self, seed: int, choice: int) -> None:
        self._seed = seed
        self._choice = choice
        self._first = 0
        self._made: torch.Tensor | None = None

    def rows(self, first: int, count: int, ids: Ids, device: torch.device) -> torch.Tensor:
        """Noise of positions `first .. first + count - 1`, float32 [count, ids]; read only."""
        made, width = self._made, num_ids(ids)
        if made is None or made.shape[1] != width or not self._first <= first <= self._first + len(made):
            self._first, made = first, torch.empty(0, width, device=device)
        missing = first + count - self._first - len(made)
        if missing > 0:
            begin = self._first + len(made)
            positions = torch.arange(begin, begin + max(missing, ROWS_AT_ONCE), device=device)
            forgotten = max(0, first - ROWS_AT_ONCE - self._first)
            made = torch.cat([made[forgotten:], gumbel(self._seed, self._choice, positions, ids)])
            self._first += forgotten
        self._made = made
        return made[first - self._first :][:count]


def gumbel_of(words: torch.Tensor) -> torch.Tensor:
    """Gumbel numbers of 64-bit words; only the upper half of each word is used.

    It is computed in float64: in float32 the upper end of u rounds to 1, which gives infinite noise.
    """
    u = _shift_right(words, 32).double().add_(0.5).mul_(2.0**-32)
    return u.log_().neg_().log_().neg_().float()


def key(seed: int | torch.Tensor, choice: int, positions: torch.Tensor) -> torch.Tensor:
    """One word per position; the words of its row are counted on from it."""
    stream = _stream_of(seed, choice) if isinstance(seed, int) else _stream(seed, choice)
    return _mix(positions * G + G + stream)


@lru_cache(maxsize=4096)
def _stream_of(seed: int, choice: int) -> int:
    return int(_stream(torch.tensor(seed), choice))


def _stream(seeds: torch.Tensor, choice: int) -> torch.Tensor:
    return _mix(_mix(seeds + G) + _signed((choice + 1) * G))


@lru_cache(maxsize=16)
def _lanes(count: int, device: torch.device) -> torch.Tensor:
    return (torch.arange(count, device=device) + 1) * G


def _mix(words: torch.Tensor) -> torch.Tensor:
    words = (words ^ _shift_right(words, 30)).mul_(FIRST)
    words.bitwise_xor_(_shift_right(words, 27)).mul_(SECOND)
    return words.bitwise_xor_(_shift_right(words, 31))


def _shift_right(words: torch.Tensor, count: int) -> torch.Tensor:
    # int64 shifts keep the sign; the mask makes the shift logical
    return (words >> count).bitwise_and_((1 << (64 - count)) - 1)
