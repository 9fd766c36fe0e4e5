"""Compares the two modes of a level on the same questions: the speed-up, by paired bootstrap, and equal answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from core.confidence_intervals import estimate
from core.text.prompts import Prompt
from serve_app.client import Answer
from serve_app.load.sending import Measured, Mode, NumberedPrompt
from serve_app.load.times import Times


class Paired(msgspec.Struct, frozen=True):
    """`ratio` is tokens/s per user with speculation over tokens/s without; `low` and `high` are its 95 % interval.

    The tokens/s of a mode are all tokens after the first chunks over all seconds after them. The bootstrap resamples
    prompts; `low` and `high` are None for fewer than two. `equal` of the `pairs` have the same answer in both modes.
    """

    pairs: int
    equal: int
    ratio: float | None
    low: float | None
    high: float | None


def paired(measured: Measured) -> Paired:
    """Compare the questions that were answered in both modes."""
    on, off = _answers(measured, "on"), _answers(measured, "off")
    both = [(question.prompt, on[question], off[question]) for question in on if question in off]
    equal = sum(ours.same_as(theirs) for _, ours, theirs in both)
    sums = _sums(both)
    if not len(sums):
        return Paired(len(both), equal, None, None, None)
    ratio, low, high = estimate(len(sums), lambda weights: _ratios(weights @ sums))
    if len(sums) < 2:
        return Paired(len(both), equal, ratio, None, None)
    return Paired(len(both), equal, ratio, low, high)


def _answers(measured: Measured, mode: Mode) -> dict[NumberedPrompt, Answer]:
    return {
        sample.question: sample.answer
        for each in measured.rounds
        for sample in each.samples
        if each.mode == mode and sample.answer is not None
    }


def _sums(both: Sequence[tuple[Prompt, Answer, Answer]]) -> npt.NDArray[np.float64]:
    """Tokens and seconds with speculation, then without, by prompt: [prompts, 4]; answers of one chunk are left out."""
    by_prompt: dict[Prompt, npt.NDArray[np.float64]] = {}
    for prompt, *pair in both:
        times = [Times(answer, 0.0) for answer in pair]
        if all(each.per_token for each in times):
            sums = by_prompt.setdefault(prompt, np.zeros(4))
            sums += np.concatenate([each.after_first_chunk for each in times])
    return np.array(list(by_prompt.values())).reshape(-1, 4)


def _ratios(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    ratios: npt.NDArray[np.float64] = (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])
    return ratios
