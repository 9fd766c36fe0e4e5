"""The dice: one Gumbel number for each (seed, choice, position, token), the same wherever it is asked for.

Target and drafts throw the same dice, so a draft whose logits are close draws the very token the target will draw.
Enters: the request's seed, the choice index, absolute positions. Leaves: noise to add to logits. There is no state:
a number depends on its four coordinates alone, never on the order, the batch or the padding of the vocabulary.

    bits(seed, choice, i, v) = mix(key + (v+1)*G)         key = mix(mix(mix(seed+G) + choice*G + G) + i*G + G)
    u = ((bits >> 32) + 0.5) / 2^32                       gumbel = -log(-log u)

all modulo 2^64, with `mix` the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

from functools import lru_cache

import torch

ROWS_AT_ONCE = 16


def _signed(word: int) -> int:
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word


G = _signed(0x9E3779B97F4A7C15)
FIRST = _signed(0xBF58476D1CE4E5B9)
SECOND = _signed(0x94D049BB133111EB)


def bits(seed: int | torch.Tensor, choice: int, positions: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """The 64-bit words of whole rows, as int64 that wraps.

    `positions` is int64 [n]: absolute indices in the target's sequence. `seed` is one number, or int64 that
    broadcasts with `positions`. Returns [n, vocab_size].
    """
    words = key(seed, choice, positions)[..., None] + _lanes(vocab_size, positions.device)
    return _mix(words)


def gumbel(seed: int | torch.Tensor, choice: int, positions: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Standard Gumbel noise, float32 [n, vocab_size], always finite; arguments as for `bits`."""
    return gumbel_of(bits(seed, choice, positions, vocab_size))


class NoiseWindow:
    """The noise of one generation, made for many positions at a time: a row by itself costs three times as much.

    Positions rise, but for the few that a rejection takes back.
    """

    def __init__(self, seed: int, choice: int) -> None:
        self._seed = seed
        self._choice = choice
        self._first = 0
        self._made: torch.Tensor | None = None

    def rows(self, first: int, count: int, vocab_size: int, device: torch.device) -> torch.Tensor:
        """Noise of positions `first .. first + count - 1`, float32 [count, vocab_size]; read only."""
        made = self._made
        if made is None or made.shape[1] != vocab_size or not self._first <= first <= self._first + len(made):
            self._first, made = first, torch.empty(0, vocab_size, device=device)
        missing = first + count - self._first - len(made)
        if missing > 0:
            begin = self._first + len(made)
            positions = torch.arange(begin, begin + max(missing, ROWS_AT_ONCE), device=device)
            forgotten = max(0, first - ROWS_AT_ONCE - self._first)
            made = torch.cat([made[forgotten:], gumbel(self._seed, self._choice, positions, vocab_size)])
            self._first += forgotten
        self._made = made
        return made[first - self._first :][:count]


def gumbel_of(words: torch.Tensor) -> torch.Tensor:
    """Gumbel numbers of 64-bit words; the upper half of each word counts.

    Taken in float64: in float32 the upper end of u rounds to 1, which is infinite noise.
    """
    u = _shift_right(words, 32).double().add_(0.5).mul_(2.0**-32)
    return u.log_().neg_().log_().neg_().float()


def key(seed: int | torch.Tensor, choice: int, positions: torch.Tensor) -> torch.Tensor:
    """One word per position, from which the row's words are counted on."""
    stream = _stream_of(seed, choice) if isinstance(seed, int) else _stream(seed, choice)
    return _mix(positions * G + G + stream)


@lru_cache(maxsize=4096)
def _stream_of(seed: int, choice: int) -> int:
    return int(_stream(torch.tensor(seed), choice))


def _stream(seeds: torch.Tensor, choice: int) -> torch.Tensor:
    return _mix(_mix(seeds + G) + _signed((choice + 1) * G))


@lru_cache(maxsize=16)
def _lanes(vocab_size: int, device: torch.device) -> torch.Tensor:
    return (torch.arange(vocab_size, device=device) + 1) * G


def _mix(words: torch.Tensor) -> torch.Tensor:
    words = (words ^ _shift_right(words, 30)).mul_(FIRST)
    words.bitwise_xor_(_shift_right(words, 27)).mul_(SECOND)
    return words.bitwise_xor_(_shift_right(words, 31))


def _shift_right(words: torch.Tensor, count: int) -> torch.Tensor:
    # int64 shifts drag the sign along; the mask makes the shift logical
    return (words >> count).bitwise_and_((1 << (64 - count)) - 1)
