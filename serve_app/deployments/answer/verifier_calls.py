"""Runs from whichever verifier there is: a prompt is admitted, and its answer resumed when a verifier is lost.

The log has a line for each verifier that is lost, and one for each answer that is resumed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, aclosing
from typing import Any, Protocol, cast

from ray.exceptions import RayError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from core.generation import Run
from serve_app.deployments.answer.admission import Admission, Place
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.answer.serve_calls import cancel_call, replica_lost, without_traceback
from serve_app.deployments.answer.started import Started
from serve_app.deployments.answer.verifier_watch import VerifiersGone, VerifierWatch
from serve_app.http.exchange import happened, span_headers
from serve_app.http.service import ChoiceRun, Overloaded
from serve_app.spans import FAILOVER

MAX_LOSSES = 3  # verifiers lost by one answer; after more it ends, since it may be the cause
RETRY_AFTER = 0.2  # seconds, four times as long after each loss
OPEN_WAIT = 300.0  # seconds that an answer which has begun waits while no verifier runs
MAX_LOGGED = 64  # lost verifiers that are remembered, so that each is logged once

logger = logging.getLogger(__name__)


class Companion(Protocol):
    """What goes beside the calls of an answer. It enters every run in the ledger of the generation."""

    def start(self, started: Started, choices: Sequence[int]) -> None:
        """A verifier holds the sessions of `choices`."""

    def enter(self, choice: int, run: Run) -> ChoiceRun:
        """A run has arrived."""

    def stop(self) -> None:
        """That call has ended, for whatever reason."""


class VerifierCalls:
    """Those of one ingress replica. A request without a run waits `wait` seconds for a verifier, others `open_wait`."""

    def __init__(
        self,
        verifier: DeploymentHandle[Any],
        watch: VerifierWatch,
        admission: Admission,
        wait: float,
        open_wait: float = OPEN_WAIT,
        retry_after: float = RETRY_AFTER,
    ) -> None:
        self._verifier = verifier
        self._watch = watch
        self._admission = admission
        self._wait = wait
        self._open_wait = open_wait
        self._retry_after = retry_after
        self._logged: deque[str] = deque(maxlen=MAX_LOGGED)  # endpoints

    @property
    def num_waiting(self) -> int:
        """The prompts that no verifier has started."""
        return self._admission.waiting

    def place(self) -> AbstractContextManager[Place]:
        """See `Admission.place`."""
        return self._admission.place()

    async def runs(self, generation: Generation, place: Place, companion: Companion) -> AsyncGenerator[ChoiceRun, None]:
        """The runs until every choice has finished. Raises `Overloaded`, or why the verifier refuses."""
        self._watch.begin()
        losses = 0
        while generation.unfinished:
            try:
                async with aclosing(self._of_one_verifier(generation, place, companion)) as runs:
                    async for run in runs:
                        yield run
                return
            except VerifiersGone as error:
                reason = type(error).__name__  # the next call waits for one
            except RayError as error:
                losses += 1
                await self._pause(error, losses)
                reason = type(error).__name__
            except DeploymentUnavailableError as error:
                raise self._unavailable() from error
            place.lose()
            happened(FAILOVER, {"error.type": reason, "taskspec.tokens": generation.num_tokens})

    async def _of_one_verifier(
        self, generation: Generation, place: Place, companion: Companion
    ) -> AsyncGenerator[ChoiceRun, None]:
        await self._until_one_runs(generation)
        choices = generation.unfinished
        requests = [generation.resumed(choice) for choice in choices]
        handle = self._verifier.options(stream=True)
        stream = cast(DeploymentResponseGenerator[Any], handle.generate.remote(requests, span_headers()))
        started: Started | None = None
        try:
            started = cast(Started, await self._watch.unless_gone(anext(stream)))
            place.start()
            if generation.num_tokens:
                logger.info("an answer goes on at verifier %s, with %d tokens", _name(started), generation.num_tokens)
            self._watch.note_sign_of_life()
            companion.start(started, choices)
            async for choice, run in stream:
                self._watch.note_sign_of_life()
                yield companion.enter(choice, run)
        except RayError as error:
            if started is not None and replica_lost(error):
                self._log_loss(started, error)
            raise
        finally:
            cancel_call(stream)
            companion.stop()

    async def _until_one_runs(self, generation: Generation) -> None:
        try:
            await self._watch.until_running(self._open_wait if generation.num_tokens else self._wait)
        except VerifiersGone as error:
            raise self._unavailable() from error

    def _unavailable(self) -> Overloaded:
        return Overloaded("no verifier is running; try again later", retry_after_s=max(1, math.ceil(self._wait)))

    def _log_loss(self, started: Started, error: RayError) -> None:
        endpoint = _name(started)
        if endpoint not in self._logged:
            self._logged.append(endpoint)
            logger.warning("verifier %s is lost (%s); its answers go on at another", endpoint, type(error).__name__)

    async def _pause(self, error: RayError, losses: int) -> None:
        """Wait before the next verifier is called; raises if none should be."""
        if not replica_lost(error):
            raise without_traceback(error) from error
        if losses > MAX_LOSSES:
            message = "several verifiers were lost during this answer, which may be the cause"
            raise Overloaded(message, code="verifiers_lost") from error
        await asyncio.sleep(self._retry_after * 4 ** (losses - 1))


def _name(started: Started) -> str:
    return started.verifier.endpoint
