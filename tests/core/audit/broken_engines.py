"""Engines that are broken on purpose, each as a speculative engine might be, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from core.generation import GenerationRequest, Run
from core.model.base import Model
from core.verify.engine import Drawing, VerifyConfig, VerifyEngine
from core.verify.sources import DRAFTS_ALONE
from tests.core.toy import ToyVocabulary

Breaks = Callable[[VerifyEngine, Drawing, list[int]], list[int]]


class BrokenEngine(VerifyEngine):
    """Draws as it should, and commits what `breaks` makes of it."""

    breaks: Breaks = staticmethod(lambda _engine, _drawing, tokens: tokens)

    def _commit(self, drawing: Drawing, tokens: list[int]) -> Run:
        return super()._commit(drawing, self.breaks(self, drawing, tokens))


def accepts_a_wrong_token(every: int) -> Breaks:
    """A draft's token passes every so often though it is the least likely one."""
    count = 0

    def broken(_engine: VerifyEngine, drawing: Drawing, tokens: list[int]) -> list[int]:
        nonlocal count
        count += 1
        return [int(drawing.logits[0].argmin())] if count % every == 0 else tokens

    return broken


def answers(
    model: Model,
    asked: Sequence[GenerationRequest],
    breaks: Breaks | None = None,
    vocabulary: object = None,
    max_sessions: int = 4,
) -> list[tuple[int, ...]]:
    """What the engine answers, in order."""
    config = VerifyConfig(max_sessions, lookup=DRAFTS_ALONE)
    engine = BrokenEngine(model, vocabulary or ToyVocabulary(), config, clock=lambda: 0.0)
    if breaks is not None:
        engine.breaks = breaks
    numbers = [engine.open([request])[0] for request in asked]
    output: dict[int, list[int]] = {number: [] for number in numbers}
    while engine.gauges()["sessions"]:
        for number, run in engine.step():
            output[number] += run.tokens
    return [tuple(output[number]) for number in numbers]


def changed(asked: Sequence[GenerationRequest], **params: object) -> list[GenerationRequest]:
    """The requests of an engine that reads some sampling parameters wrongly."""
    return [
        msgspec.structs.replace(request, params=msgspec.structs.replace(request.params, **params)) for request in asked
    ]
