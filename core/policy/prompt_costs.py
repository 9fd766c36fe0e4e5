"""The seconds that a pass takes for prompts beside its other rows.

A prompt's token costs the more the later it comes, because it attends to all tokens before it: one of SmolLM2-135M
takes 0.55 ms at the beginning and 1.7 after 3,000 others (a core of Zen 5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import linear_regression
from typing import NamedTuple

_GAIN = 1 / 4
_PER_PAIR = 1 / 4096  # of the seconds of a token, before it is measured
_LEAST_PER_PAIR = 1 / 16384  # the difference of two measured times may be anything


class Chunk(NamedTuple):
    """So many tokens of one prompt that a pass reads, and how many lie before them."""

    tokens: int
    depth: int

    @property
    def pairs(self) -> float:
        """Of a token and one that it attends to."""
        return self.tokens * (self.depth + self.tokens / 2)


class PromptCosts:
    """Seconds for each token of a prompt, and for each pair of a token and one that it attends to."""

    def __init__(self) -> None:
        self._per_token = self._per_pair = 0.0

    @property
    def known(self) -> bool:
        """Whether reading was observed."""
        return self._per_token > 0.0

    def begin(self, seconds: Mapping[Chunk, float]) -> None:
        """Take what these chunks took, all positive, for what any will; of one chunk the share of pairs is a guess."""
        per_token = [chunk_seconds / chunk.tokens for chunk, chunk_seconds in seconds.items()]
        attended = [chunk.pairs / chunk.tokens for chunk in seconds]
        slope, first = linear_regression(attended, per_token) if len(seconds) > 1 else (0.0, 0.0)
        if slope > 0.0 and first > 0.0:
            self._per_token, self._per_pair = first, max(slope, first * _LEAST_PER_PAIR)
        else:
            mean = sum(per_token) / len(per_token)
            self._per_token = mean / (1.0 + _PER_PAIR * sum(attended) / len(attended))
            self._per_pair = _PER_PAIR * self._per_token

    def learn(self, chunks: Sequence[Chunk], surprise: float, expected: float) -> None:
        """Count a pass of which `expected` seconds were expected and `surprise` times more observed, or less if < 0.

        Tokens and pairs have surprised by as much as is their share of the pass.
        """
        of_tokens, of_pairs = (self._per_token * _tokens(chunks), self._per_pair * _pairs(chunks))
        self._per_token *= 1.0 + _GAIN * surprise * of_tokens / expected
        self._per_pair *= 1.0 + _GAIN * surprise * of_pairs / expected

    def seconds(self, chunks: Sequence[Chunk]) -> float:
        """Expected; 0 before any was observed."""
        return self._per_token * _tokens(chunks) + self._per_pair * _pairs(chunks)

    def fitting(self, seconds: float, depth: int) -> float:
        """The number of tokens after `depth` others that take so long; infinite before any was observed."""
        if not self.known or math.isinf(seconds):
            return math.inf
        first = self._per_token + self._per_pair * depth  # n tokens take n * first + n * n / 2 * per_pair
        return max(0.0, 2.0 * seconds / (first + math.sqrt(first * first + 2.0 * self._per_pair * max(0.0, seconds))))


def _tokens(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.tokens for chunk in chunks)


def _pairs(chunks: Sequence[Chunk]) -> float:
    return sum(chunk.pairs for chunk in chunks)
