"""Models that note when each of their forwards began and ended, here and in other processes, and a verifier that does.

Enters: a model, or what a process makes one of. Leaves: spans on the clock that all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NamedTuple

import torch

from core.generation import Vocabulary
from core.model.base import Model, Rows
from core.model.draft_tokens import DraftToken, StopRule
from core.verify.engine import VerifyConfig
from core.verify.verifier import Verifier
from core.wire.messages import Close, Commit
from tests.bench.engines import Loaded

PREFILLING = 16  # forwards of a prompt: more than there are


class Span(NamedTuple):
    """When a forward began and ended, or the draw of so many tokens."""

    began: float
    ended: float
    tokens: int = 1

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Spans:
    """What forwards took, in memory that this process and one it spawns share: a queue would take time of its own."""

    def __init__(self, most: int) -> None:
        self._numbers = get_context("spawn").RawArray("d", 3 * most)  # those not yet noted are 0
        self._noted = 0

    def note(self, span: Span) -> None:
        """By one process only."""
        self._numbers[3 * self._noted : 3 * self._noted + 3] = span
        self._noted += 1

    def noted(self) -> list[Span]:
        """In the order of time, by whichever process; complete once nothing is noted any more."""
        spans = map(Span, self._numbers[::3], self._numbers[1::3], map(int, self._numbers[2::3]))
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
        self._spans.note(Span(began, time.monotonic()))
        return logits

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None, ending: StopRule
    ) -> list[list[DraftToken]]:
        began = time.monotonic()
        drawn = self._model.draw(batch, steps, num_ids, noise, ending)
        self._spans.note(Span(began, time.monotonic(), len(drawn[0])))
        return drawn


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


class Stamping(Verifier):
    """Keeps when each pass' verdict had been sent to the draft, or would have been."""

    def __init__(self, load: Callable[[], Model], vocabulary: Vocabulary, config: VerifyConfig) -> None:
        super().__init__(load, vocabulary, config)
        self.verdicts: list[float] = []
        self._passes = 0
        self._send, self._wire.send = self._wire.send, self._stamp  # type: ignore[method-assign]

    def _stamp(self, messages: Iterable[tuple[bytes, Commit | Close]]) -> None:
        self._send(messages)
        if self._engine.counts["steps"] > self._passes:
            self._passes = self._engine.counts["steps"]
            self.verdicts.append(time.monotonic())
