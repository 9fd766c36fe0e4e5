"""The deployment behind the HTTP proxy: serves the OpenAI protocol, and calls verifier, router and draft pools.

It makes one call per prompt to the verifier, one to the router and at most one per choice to a draft pool, and one more
for each move to another, however many rounds the answer takes. `counts` has the number of calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from core.draft_key import GENERAL
from core.generation import GenerationRequest
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.model_names import locate
from core.text.tokenizer import load_tokenizer
from serve_app.access.guarding import guarded
from serve_app.access.key_file import Names
from serve_app.access.keys import Keys
from serve_app.deployments.answer.bundle_choice import BundleChoice
from serve_app.deployments.answer.door import Door, Place
from serve_app.deployments.answer.draft_sessions import DraftSessions
from serve_app.deployments.answer.generation_state import GenerationState
from serve_app.deployments.answer.serving import Serving, Tallies
from serve_app.deployments.answer.started import Started
from serve_app.deployments.answer.trace_recorder import TraceRecorder
from serve_app.deployments.answer.verifier_calls import VerifierCalls
from serve_app.deployments.answer.verifier_list import listed_verifiers
from serve_app.deployments.answer.verifier_watch import VerifierWatch
from serve_app.deployments.models.plan import Judged
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.answer_metrics import AnswerMetrics
from serve_app.deployments.telemetry.ingress_report import IngressReport
from serve_app.deployments.telemetry.metrics import Metrics, MoveMetrics
from serve_app.deployments.telemetry.node_metrics import cluster_metrics
from serve_app.deployments.telemetry.replica_log import log_into_replica
from serve_app.http.service import ChoiceRun, Speculation

Handle = DeploymentHandle[Any]


@serve.ingress()
class SpeculativeIngress:
    """An ingress replica; implements `serve_app.http.service.Service`."""

    def __init__(
        self, served: ServedModels, verifier: Handle, owner_salt: bytes, keys_of_environment: Names | None = None
    ) -> None:
        log_into_replica()
        config = served.config
        keys = config.ingress.keys
        self._keys = None if keys is None else Keys(keys.file, keys_of_environment or {})
        target = locate(config.target.model)
        self.tokenizer = load_tokenizer(target, config.target.tool_format)
        self.model_name = config.name
        self.aliases = config.aliases
        self.context = ModelConfig.load(resolve(target)).context
        self.vocab_size = self.tokenizer.num_valid
        self.owner_salt = owner_salt
        self.max_choices = min(config.ingress.max_choices, config.target.max_sessions)
        self._config = config
        self._watch = VerifierWatch(partial(listed_verifiers, verifier))
        door = Door(lambda: config.target.max_sessions * max(1, self._watch.listed), config.target.max_queued)
        self._calls = VerifierCalls(verifier, self._watch, door, config.ingress.verifier_wait_s)
        self._tallies = Tallies()
        self._bundles = BundleChoice(served, self._tallies)
        self._proposed: Counter[str] = Counter()  # by drafts, by pool
        self._accepted: Counter[str] = Counter()
        self._answers = AnswerMetrics()
        self._metrics, self._move_metrics = Metrics("ingress", gauges=frozenset()), MoveMetrics()
        self._traces = None if config.traces is None else TraceRecorder(config.traces)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Those of the bundle that serves."""
        return self._bundles.current.tasks

    def __serve_build_asgi_app__(self) -> FastAPI:
        return guarded(self, self._config.ingress, self._keys, numbered_by_proxy=True)

    def describe(self) -> dict[str, object]:
        """The properties of the model for /v1/models."""
        target, draft = self._config.target, self._config.draft
        return {
            "target": target.model,
            "draft": draft.model,
            "dtype": target.dtype,
            "numerics": target.numerics,
            "context": self.context,
            "bundle": self._bundles.current.version,
            "tasks": list(self.tasks),
            "num_speculative_tokens": draft.num_speculative_tokens,
        }

    async def healthy(self) -> bool:
        """True if a verifier runs, however busy it is; known at once."""
        self._watch.begin()
        return self._watch.running

    async def metrics(self) -> str:
        """See `Service.metrics`."""
        return await cluster_metrics()

    def counts(self) -> Counter[str]:
        """Generations, the Serve calls made for them, sessions that went without a draft, and moves to other drafts."""
        return self._tallies.counts

    def served(self) -> ServedModels:
        """The configuration and the models of the bundle that serves."""
        return self._bundles.current.served

    def report(self) -> IngressReport:
        """What `taskspec status` shows of this replica."""
        served = self._bundles.current.served
        return IngressReport(
            self.model_name,
            served.version,
            {served.pool(task): task for task in served.drafts},
            served.router,
            self._proposed,
            self._accepted,
            None if self._traces is None else self._traces.counts(),
        )

    async def check_health(self) -> None:
        """A replica that answers is healthy."""
        self._watch.begin()
        self._bundles.talk()
        self._metrics.export(self._tallies.counts)
        self._answers.export()
        self._move_metrics.export(self._tallies.moves)
        if self._traces is not None:
            self._traces.export()

    def __del__(self) -> None:
        """Serve calls this once no request is left, before it ends the replica."""
        if self._traces is not None:
            self._traces.close()

    async def generate(
        self, requests: list[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        """See `Service.generate`. If a verifier is lost, another one resumes the generation."""
        with self._calls.place() as place:
            self._tallies.counts["generations"] += 1
            received, serving, judged = GenerationState(requests), self._bundles.choose(speculation.task), Judged()
            wiring = self._wire(received, serving, speculation) if speculation.enabled else None
            recording = None if self._traces is None else self._traces.recording(received, wiring, serving.served)
            timed = self._answers.begin()
            self._bundles.begin(serving)
            try:
                async with aclosing(self._runs(received, place, wiring)) as runs:
                    async for run in runs:
                        self._count(run, serving, judged)
                        timed.take(run, serving.version)
                        if recording is not None:
                            recording.take(run)
                        yield run
            finally:
                routed = wiring.prior if wiring is not None else None
                self._bundles.end(serving, judged.answers(routed or {GENERAL: 1.0}))
                if wiring is not None:
                    wiring.close()

    async def _runs(
        self, received: GenerationState, place: Place, wiring: DraftSessions | None
    ) -> AsyncGenerator[ChoiceRun, None]:
        """The runs, each with the task whose draft proposed for it."""
        async with aclosing(self._calls.runs(received, place, Beside(self._tallies, wiring))) as runs:
            async for choice, run in runs:
                task = GENERAL
                if wiring is not None:
                    task = wiring.task(choice)
                    wiring.take(choice, run)
                yield ChoiceRun(choice, run, task)

    def _count(self, run: ChoiceRun, serving: Serving, judged: Judged) -> None:
        judged.take(run.choice, run.run)
        if run.run.source == "draft":
            pool = serving.served.pool(run.task)
            self._proposed[pool] += run.run.proposed
            self._accepted[pool] += run.run.accepted

    def _wire(self, received: GenerationState, serving: Serving, speculation: Speculation) -> DraftSessions:
        task = speculation.task if speculation.task in serving.tasks else None
        return DraftSessions(serving, received, self._config.draft.num_speculative_tokens, task)


class Beside:
    """Implements `verifier_calls.Companion`: counts the calls, and wires drafts to them."""

    def __init__(self, tallies: Tallies, wiring: DraftSessions | None) -> None:
        self._tallies = tallies
        self._wiring = wiring

    def start(self, started: Started, choices: Sequence[int]) -> None:
        self._tallies.counts["verifier_calls"] += 1
        self._tallies.declining = started.declines_all
        if self._wiring is not None:
            self._wiring.start(started, choices)

    def stop(self) -> None:
        if self._wiring is not None:
            self._wiring.stop()
