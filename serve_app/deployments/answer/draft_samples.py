"""Samples of drafted answers, which an ingress replica hands to the check of drafts (`core.replay.decay`).

Every few seconds it hands over some of the answers that ended since the last time, each as likely. On the path of the
requests this costs a copy of the token ids of each answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from random import Random
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from core.replay.decay import DraftedAnswer
from core.traces.record import Record
from core.traces.reservoir import Reservoir
from serve_app.application_names import DRAFT_CHECK
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.models.served_models import ServedModels

SAMPLES = 16  # answers of a hand-over
EVERY = 5.0  # seconds
PATIENCE = 30.0  # seconds for the check to answer, and until the next try if it does not

logger = logging.getLogger(__name__)


class DraftSamples:
    """Those of one ingress replica. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._check: DeploymentHandle[Any] = DeploymentHandle("DraftCheck", DRAFT_CHECK)
        self._rng = Random()
        self._sample = Reservoir[DraftedAnswer](SAMPLES, self._rng)
        self._next_at = -float("inf")
        self._handing: asyncio.Task[None] | None = None

    def offer(self, generation: Generation, choice: int, served: ServedModels) -> None:
        """A choice has finished. It may be sampled if one draft alone has proposed for it, and its client lets it."""
        entry, request = generation.ledger.choices[choice], generation.requests[choice]
        task = entry.drafted_by
        if task is None or entry.moved or not request.store or task not in served.drafts:
            return
        before = len(request.tokens) - request.prompt_length  # of the answer, when this service was asked to go on
        passes = tuple(each._replace(position=each.position + before) for each in entry.drafted)
        record = Record.of(generation.resumed(choice), ())
        self._sample.offer(DraftedAnswer(record, passes, task, served.drafts[task]))

    def hand_over(self) -> None:
        """Hand them over if it is time; returns at once."""
        if self._sample.items and self._clock() >= self._next_at and (self._handing is None or self._handing.done()):
            self._handing = asyncio.create_task(self._hand_over())

    async def _hand_over(self) -> None:
        sample, self._sample = self._sample, Reservoir(SAMPLES, self._rng)
        self._next_at = self._clock() + EVERY
        try:
            await asyncio.wait_for(self._check.take.remote(sample.items), PATIENCE)
        except (RayError, RayServeException, TimeoutError) as error:
            logger.debug("check of drafts: %s", type(error).__name__)
            self._next_at = self._clock() + PATIENCE
