"""What was collected, read back: traces by part, and the target's log-probabilities for those to learn from.

Enters: the directory that `collect` filled. Leaves: traces in one fixed order, and distillation sets of any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from core.distillation import DistillationSet
from core.traces import Trace, traces_of

Part = Literal["train", "stop", "gate", "test"]
PARTS: tuple[Part, ...] = ("train", "stop", "gate", "test")
HELD_OUT = PARTS[1:]  # for the early stop, for the gate, for the figures that are told: nothing is used twice


class Collected:
    """Shards `<part>-<number>.parquet`, and beside those to learn from `train-<number>.safetensors`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def traces(self, part: Part) -> list[Trace]:
        """All traces of a part; what they are numbered by everywhere."""
        return [trace for file in self._shards(part) for trace in traces_of(file.read_bytes())]

    def distilled(self, numbers: Sequence[int]) -> DistillationSet:
        """What the target says of these traces of the part to learn from, in this order."""
        sets, first = [], 0
        wanted = sorted(numbers)
        for file, count in zip(self._shards("train"), self._sizes, strict=True):
            here = [number - first for number in wanted if first <= number < first + count]
            if here:
                sets.append(DistillationSet.load(file.with_suffix(".safetensors")).take(here))
            first += count
        order = {number: place for place, number in enumerate(wanted)}
        return DistillationSet.join(sets).take([order[number] for number in numbers])

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(traces_of(file.read_bytes())) for file in self._shards("train")]

    def _shards(self, part: Part) -> list[Path]:
        return sorted(self._directory.glob(f"{part}-*.parquet"))


def shard_names(part: Part, count: int, size: int) -> Iterator[tuple[str, slice]]:
    """Names of the shards that `count` traces of a part fill, and which traces go into each."""
    for number, start in enumerate(range(0, count, size)):
        yield f"{part}-{number:04d}", slice(start, start + size)
