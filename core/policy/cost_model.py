"""The seconds of a target pass, by its rows and by the number of sessions that are drafted for meanwhile.

A pass costs shape(rows) x pace(num_drafting). The shape is profiled before there is work and hardly changes. The pace
follows the machine: one slowed down by others is slow for passes of all sizes. Drafts that share cores or memory with
the target slow it down, too, by an amount that only passes beside them show; it is forgotten while there are none.
Drafts with devices of their own cost
nothing, and all paces are one. What a pass reads of prompts beside its rows is added (`core.policy.prompt_costs`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from core.model.base import Model, Rows
from core.policy.prompt_costs import Chunk, PromptCosts

PROFILED_ROWS = (*range(1, 17), 20, 24, 32, 48, 64)
PROFILED_CHUNK, PROFILED_CHUNKS = 64, 5  # tokens of a prompt that are read, and how often
_TURNS = 3  # the first also lays out memory
_PACE_GAIN, _SHAPE_GAIN = 1 / 8, 1 / 32
_LEAST_READING = 1 / 8  # of the seconds of the first pass that reads
_LARGEST_RATIO = 2.0  # of observed to expected seconds; a pass beyond was interrupted
_SESSION = -1


class _Curve(NamedTuple):
    """Seconds by size, ascending: a larger size never costs less, nor more than in proportion."""

    sizes: list[int]
    seconds: list[float]

    @classmethod
    def through(cls, shape: Mapping[int, float]) -> _Curve:
        sizes = sorted(shape)
        rates = accumulate((shape[size] / size for size in sizes), min)
        seconds = [min(shape[size], rate * size) for size, rate in zip(sizes, rates, strict=True)]
        return cls(sizes, [*accumulate(reversed(seconds), min)][::-1])

    def at(self, rows: int) -> float:
        """Interpolated; below all sizes the least of them, beyond them as their upper half continues."""
        sizes, seconds = self
        above = bisect_left(sizes, rows)
        if above == len(sizes):
            largest, half = sizes[-1], sizes[-1] // 2
            each = (seconds[-1] - self.at(half)) / (largest - half)
            return min(seconds[-1] / largest * rows, seconds[-1] + each * (rows - largest))
        if above == 0 or sizes[above] == rows:
            return seconds[above]
        share = (rows - sizes[above - 1]) / (sizes[above] - sizes[above - 1])
        return seconds[above - 1] + share * (seconds[above] - seconds[above - 1])


class PassCosts:
    """Seconds of a pass. More rows never cost less, nor more than in proportion; more drafting never costs less."""

    def __init__(self) -> None:
        self.prompts = PromptCosts()
        self._shape: dict[int, float] = {}  # size -> seconds at pace 1
        self._paces: dict[int, float] = {0: 1.0}  # by the bit length of num_drafting
        self._recent = set[int]()  # of these, since estimates last forgot
        self._curve = _Curve.through({})
        self._known: dict[tuple[int, int], float] = {}  # since the last change: plans ask for the same few, many times

    def observe(self, rows: int, seconds: float, num_drafting: int = 0) -> None:
        """Count a pass over `rows` beside so many sessions that were drafted for."""
        if seconds <= 0.0:  # the clock is too coarse
            return
        self._known.clear()
        size, bucket = _size(rows), num_drafting.bit_length()
        pace = self._paces.setdefault(bucket, self._pace(bucket))
        self._recent.add(bucket)
        expected = self._shape.get(size)
        if not expected:
            self._shape[size] = seconds / pace
            self._shape[size] = _Curve.through(self._shape).at(size)  # the pass may have been interrupted
        else:
            beyond = min(seconds / (pace * expected), _LARGEST_RATIO) - 1.0
            self._paces[bucket] = pace * (1.0 + _PACE_GAIN * beyond)
            self._shape[size] = expected * (1.0 + _SHAPE_GAIN * beyond)
        self._curve = _Curve.through(self._shape)

    def observe_reading(self, rows: int, chunks: Sequence[Chunk], seconds: float, num_drafting: int = 0) -> None:
        """Count a pass over `rows` of answers, or none, that read chunks of prompts beside them.

        What it says of the rows is not believed: passes beside a long prompt tell the two hardly apart.
        """
        if seconds <= 0.0:
            return
        passing = self.seconds(rows, num_drafting)
        if not self.prompts.known:
            whole = Chunk(sum(chunk.tokens for chunk in chunks), min(chunk.depth for chunk in chunks))
            self.prompts.begin({whole: max(seconds - passing, _LEAST_READING * seconds)})
            return
        expected = passing + self.prompts.seconds(chunks)
        self.prompts.learn(chunks, min(seconds / expected, _LARGEST_RATIO) - 1.0, expected)

    def forget(self, keep: float) -> None:
        """Move the paces not seen lately towards that without drafts: what is not seen is taken to cost nothing."""
        self._known.clear()
        alone = self._paces[0]
        for bucket in self._paces.keys() - self._recent:
            self._paces[bucket] = alone + keep * (self._paces[bucket] - alone)
        self._recent.clear()

    @property
    def known(self) -> bool:
        """Whether a pass was observed."""
        return bool(self._shape)

    def seconds(self, rows: float, num_drafting: float = 0) -> float:
        """Expected seconds of a pass; 0 before any was observed."""
        key = round(rows), math.ceil(num_drafting).bit_length()
        seconds = self._known.get(key)
        if seconds is None:
            seconds = self._known[key] = self._pace(key[1]) * self._curve.at(key[0]) if self.known else 0.0
        return seconds

    def share(self, fewer: int, rows: int, num_drafting: int) -> float:
        """What a pass over `fewer` rows without drafts would have taken of one over `rows`; 1 before any observed."""
        return self.seconds(fewer) / self.seconds(rows, num_drafting) if self.known else 1.0

    def per_row(self, rows: float, more: int) -> float:
        """Seconds that each of `more` rows adds to a pass of `rows`."""
        return (self.seconds(rows + more) - self.seconds(rows)) / more

    def _pace(self, bucket: int) -> float:
        return max(pace for smaller, pace in self._paces.items() if smaller <= bucket)


def profile(model: Model, clock: Callable[[], float], costs: PassCosts) -> None:
    """Observe the quickest of some passes of each size; the model must hold no sessions, and holds none after."""
    sizes = [rows for rows in PROFILED_ROWS if rows < model.context]
    num_chunks = min(PROFILED_CHUNKS, (model.context - 1) // PROFILED_CHUNK)
    chunks = [Chunk(PROFILED_CHUNK, PROFILED_CHUNK * number) for number in range(num_chunks)]
    model.open(_SESSION)
    try:
        for rows, seconds in _quickest(model, clock, sizes).items():
            costs.observe(rows, seconds)
        passes, passing = _quickest_reading(model, clock, chunks), costs.seconds(0)
        if passes and passing:
            costs.prompts.begin({chunk: max(s - passing, _LEAST_READING * s) for chunk, s in passes.items()})
    finally:
        model.close(_SESSION)


def _quickest(model: Model, clock: Callable[[], float], sizes: list[int]) -> dict[int, float]:
    quickest = dict.fromkeys(sizes, math.inf)
    for _ in range(_TURNS):
        for rows in sizes:
            began = clock()
            model.forward([Rows(_SESSION, [0] * rows, rows)]).argmax(-1).tolist()
            quickest[rows] = min(quickest[rows], clock() - began)
            model.rollback(_SESSION, 0)
    return quickest


def _quickest_reading(model: Model, clock: Callable[[], float], chunks: Sequence[Chunk]) -> dict[Chunk, float]:
    """Seconds of passes that read one prompt, chunk after chunk."""
    quickest = dict.fromkeys(chunks, math.inf)
    for _ in range(_TURNS - 1):  # most of the memory is laid out
        for chunk in chunks:
            began = clock()
            model.forward([Rows(_SESSION, [0] * chunk.tokens, 1)]).argmax(-1).tolist()
            quickest[chunk] = min(quickest[chunk], clock() - began)
        model.rollback(_SESSION, 0)
    return quickest


def _size(rows: int) -> int:
    """Up to 16 rows every number is a size of its own, above that an eighth of a power of two."""
    step = 1 << max(0, rows.bit_length() - 4)
    return rows // step * step
