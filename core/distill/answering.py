"""Batch inference with the target. It uses the serving engine, so a client would get the same answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from core.generation import GenerationRequest, Vocabulary
from core.model.base import Model
from core.traces.record import Record
from core.verify.engine import VerifyConfig, VerifyEngine
from core.verify.sources import DRAFTS_ALONE


def answer(
    model: Model, vocabulary: Vocabulary, requests: Sequence[GenerationRequest], max_sessions: int = 32
) -> Iterator[tuple[int, Record]]:
    """Yield (index of the request, its record) in the order in which the answers end.

    `model` needs pages for at least one whole context. Raises `InvalidRequest` at one that the target cannot take.
    """
    # nothing is proposed, so nothing reads the clock
    engine = VerifyEngine(model, vocabulary, VerifyConfig(max_sessions, lookup=DRAFTS_ALONE), clock=lambda: 0.0)
    waiting = iter(enumerate(requests))
    running: dict[int, int] = {}
    output: dict[int, list[int]] = {}
    while True:
        # only as many requests as can run: the engine scans its whole queue at every pass
        for index, request in islice(waiting, max_sessions - len(running)):
            [number] = engine.open([request])
            running[number], output[number] = index, []
        if not running:
            return
        for number, run in engine.step():
            output[number] += run.tokens
            if run.finish_reason is not None:
                index = running.pop(number)
                yield index, Record.of(requests[index], tuple(output.pop(number)))
