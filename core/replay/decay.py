"""Decay: whether a draft still proposes in service what it proposes in an exact replay of the same answers.

A draft's token hangs on what stands before it, on the noise and on the draft alone. So at a position where the target
judged a token of the draft in service, the replay of that draft tells whether it ought to have been accepted, however
many tokens were asked for, whichever were drafted ahead, and whatever other sources proposed between. If tokens are
accepted less often than that, the draft in service computes something else, by a broken cache or with other weights.
Prompts that are harder to draft for lower both alike. This module needs no torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from core.confidence_intervals import Estimate, estimate
from core.model.base import Model, Rows
from core.sampling.gumbel import Ids
from core.sampling.sampler import GeneratedCounts, Sampling, sample
from core.traces.record import Record

FEWEST = 20  # answers that a draft is judged by
WINDOW = 60  # answers that are remembered of a draft: so many later, one that was restarted is well again
MARGIN = 0.02  # of acceptance: a gap that is not worth an alarm
_CHUNK = 256  # tokens of a pass
_SESSION = 0


class DraftedPass(NamedTuple):
    """A pass that a draft proposed for: behind how many tokens of the answer; tokens proposed, and accepted."""

    position: int
    proposed: int
    accepted: int


class DraftedAnswer(NamedTuple):
    """An answer with the passes for which one draft proposed: that of a task, in this directory."""

    record: Record
    passes: tuple[DraftedPass, ...]
    task: str
    directory: str | None


class Agreement(NamedTuple):
    """Of the draft's tokens that were judged in service, those accepted there, and those accepted in the replay."""

    judged: int = 0
    accepted: int = 0
    replayed: int = 0

    def plus(self, other: Agreement) -> Agreement:
        return Agreement(*map(sum, zip(self, other, strict=True)))


class DraftRecord(NamedTuple):
    """How a draft did lately: the shares accepted in service and in the replay, and the gap with its interval."""

    answers: int
    accepted: float
    replayed: float
    gap: Estimate

    @property
    def decayed(self) -> bool:
        """Whether the gap is beyond chance and worth an alarm."""
        return self.answers >= FEWEST and self.gap.low > MARGIN


class DecayWatch:
    """The last answers of each draft, by its name."""

    def __init__(self) -> None:
        self._answers: dict[str, deque[Agreement]] = {}

    def add(self, name: str, agreement: Agreement) -> None:
        if agreement.judged:
            self._answers.setdefault(name, deque(maxlen=WINDOW)).append(agreement)

    def forget(self, name: str) -> None:
        """Remember nothing of a draft that serves no more."""
        self._answers.pop(name, None)

    def record(self, name: str) -> DraftRecord | None:
        """None before the first answer."""
        if name not in self._answers:
            return None
        judged, accepted, replayed = np.array(self._answers[name], np.float64).T
        gap = estimate(len(judged), lambda counts: (counts @ (replayed - accepted)) / (counts @ judged))
        total = judged.sum()
        return DraftRecord(len(judged), float(accepted.sum() / total), float(replayed.sum() / total), gap)


def agreement(model: Model[Any], ids: Ids[Any], answer: DraftedAnswer) -> Agreement:
    """Replay one answer. `model` is the draft, with pages for its context, and `ids` are those that it draws.

    Where an answer is longer than the draft's context, what the draft sees hangs on when it joined, so only positions
    within it are compared.
    """
    record = answer.record
    output = record.output_ids[: max(0, model.context + 1 - record.prompt_length)]
    if not output or not record.prompt_ids:
        return Agreement()
    logits = _logits(model, [*record.prompt_ids, *output[:-1]], len(output))
    law = Sampling(
        record.params, record.choice, record.prompt_length, GeneratedCounts(), output[:-1], record.prompt_ids
    )
    drafted = sample(logits, [law], ids)
    verdicts = [(place, hit) for place, hit in _judged(answer.passes) if place < len(output)]
    return Agreement(
        len(verdicts),
        sum(hit for _, hit in verdicts),
        sum(drafted[place] == output[place] for place, _ in verdicts),
    )


def _judged(passes: Sequence[DraftedPass]) -> Iterator[tuple[int, bool]]:
    """The places in the answer whose proposed token the target judged, and whether it was accepted.

    One behind the end of the answer is that of a rejected token that no longer counted.
    """
    for position, proposed, accepted in passes:
        for number in range(min(proposed, accepted + 1)):
            yield position + number, number < accepted


def _logits(model: Model[Any], tokens: Sequence[int], num_logits: int) -> Any:
    """Those of the last tokens, from passes of a bounded size."""
    parts, first = [], len(tokens) - num_logits
    model.open(_SESSION)
    try:
        for begin in range(0, len(tokens), _CHUNK):
            chunk = tokens[begin : begin + _CHUNK]
            rows = min(len(chunk), max(0, begin + len(chunk) - first))
            logits = model.forward([Rows(_SESSION, chunk, rows)])
            if rows:
                parts.append(np.asarray(logits).copy())  # the next pass may take its memory
    finally:
        model.close(_SESSION)
    return np.concatenate(parts)
