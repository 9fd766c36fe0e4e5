"""Answers prompts with the target, many at a time, where nobody waits for a single one.

Enters: generation requests. Leaves: records, each as soon as it is finished. The engine is the one that serves, so an
answer is the one a client would have got.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from core.admission import Vocabulary
from core.generation import GenerationRequest
from core.model.base import Model
from core.record import Record
from core.verify_engine import VerifyConfig, VerifyEngine


def answer(
    model: Model, vocabulary: Vocabulary, requests: Sequence[GenerationRequest], max_sessions: int = 32
) -> Iterator[tuple[int, Record]]:
    """Yield (index of the request, its record) in the order the answers end.

    `model` must have pages for one whole context at least. Raises `InvalidRequest` when the turn of a request comes
    that the target cannot take.
    """
    # no draft is ever wired, so nothing reads the clock's value
    engine = VerifyEngine(model, vocabulary, VerifyConfig(max_sessions), clock=lambda: 0.0)
    waiting = iter(enumerate(requests))
    running: dict[int, int] = {}
    said: dict[int, list[int]] = {}
    while True:
        # the engine is handed only what it can run: it looks through its whole queue at every pass
        for index, request in islice(waiting, max_sessions - len(running)):
            [number] = engine.open([request])
            running[number], said[number] = index, []
        if not running:
            return
        for number, run in engine.step():
            said[number] += run.tokens
            if run.finish_reason is not None:
                index = running.pop(number)
                yield index, Record.of(requests[index], tuple(said.pop(number)))
