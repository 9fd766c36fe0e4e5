"""Models that note when each of their forwards began and ended, here and in other processes.

Enters: a model, or what a process makes one of. Leaves: spans on the clock that all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NamedTuple

import torch

from core.model.base import Model, Rows
from tests.bench.engines import Loaded

PREFILLING = 16  # forwards of a prompt: more than there are


class Span(NamedTuple):
    """When a forward began and ended."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Spans:
    """What forwards took, in memory that this process and one it spawns share: a queue would take time of its own."""

    def __init__(self, most: int) -> None:
        self._moments = get_context("spawn").RawArray("d", 2 * most)  # those not yet noted are 0
        self._noted = 0

    def note(self, began: float, ended: float) -> None:
        """By one process only."""
        self._moments[2 * self._noted], self._moments[2 * self._noted + 1] = began, ended
        self._noted += 1

    def noted(self) -> list[Span]:
        """In the order of time, by whichever process; complete once nothing is noted any more."""
        spans = map(Span, self._moments[::2], self._moments[1::2])
        return [span for span in spans if span.ended]


class _Timed:
    """A model that notes when its forwards begin and end."""

    def __init__(self, model: Model, spans: Spans) -> None:
        self._model = model
        self._spans = spans

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        began = time.monotonic()
        logits = self._model.forward(batch)
        self._spans.note(began, time.monotonic())
        return logits

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None
    ) -> Iterator[torch.Tensor]:
        """Every token is noted by itself, with the noise it adds; the drafts of these measurements do not loop."""
        assert not self._model.loops
        drawn = self._model.draw(batch, steps, num_ids, noise)
        for _ in range(steps):
            began = time.monotonic()
            scores = next(drawn)
            self._spans.note(began, time.monotonic())
            yield scores


def timed(model: Model, spans: Spans) -> Model:
    """The same model, noting when its forwards begin and end."""
    return _Timed(model, spans)  # type: ignore[return-value]


@dataclass(frozen=True)
class TimedModel:
    """What a process makes a model of that notes its forwards here; it and the threads it starts keep to `cores`."""

    model: Loaded
    spans: Spans
    cores: Sequence[int]

    def load(self) -> Model:
        os.sched_setaffinity(0, self.cores)
        return timed(self.model.load(), self.spans)
