"""The deployment behind the HTTP proxy: serves the OpenAI protocol, and calls verifier, router and draft pools.

What happens to an answer stands in `serve_app.deployments.answer.answers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve import metrics
from ray.serve.handle import DeploymentHandle

from core.generation import GenerationRequest
from core.model_names import locate
from core.text.tokenizer import load_tokenizer
from serve_app.access.guarding import Access, guarded
from serve_app.access.key_file import KeyHolders
from serve_app.access.keys import Keys
from serve_app.console.operator import ServiceOperator
from serve_app.deployments.answer.admission import Admission
from serve_app.deployments.answer.answers import Answers
from serve_app.deployments.answer.trace_recorder import TraceRecorder
from serve_app.deployments.answer.verifier_calls import VerifierCalls
from serve_app.deployments.answer.verifier_watch import VerifierWatch, listed_verifiers
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.http_metrics import HttpMetrics
from serve_app.deployments.telemetry.node_metrics import cluster_metrics
from serve_app.deployments.telemetry.replica_log import RecentFaults, log_into_replica
from serve_app.deployments.telemetry.reports import IngressActivity, IngressReport
from serve_app.http.service import ChoiceRun, Speculation
from serve_app.spans import open_spans


@serve.ingress()
class SpeculativeIngress:
    """An ingress replica; implements `serve_app.http.service.Service`."""

    def __init__(
        self,
        served: ServedModels,
        verifier: DeploymentHandle[Any],
        owner_salt: bytes,
        keys_of_environment: KeyHolders | None = None,
    ) -> None:
        log_into_replica()
        self._spans = open_spans("ingress")
        self._faults = RecentFaults()
        config = served.config
        keys = config.ingress.keys
        valid = None if keys is None else Keys(keys.file, keys_of_environment or {})
        self._access = Access.of(config.ingress, valid)
        target = locate(config.target.model)
        self.tokenizer = load_tokenizer(target, config.target.tool_format)
        self.model_name = config.name
        self.aliases = config.aliases
        self.context = config.target.context
        self.vocab_size = self.tokenizer.num_valid
        self.owner_salt = owner_salt
        self.max_choices = min(config.ingress.max_choices, config.target.max_sessions)
        self._config = config
        self._watch = VerifierWatch(partial(listed_verifiers, verifier))
        self._verifiers = metrics.Gauge("taskspec_ingress_verifiers")
        self._admission = Admission(
            lambda: config.target.max_sessions * max(1, self._watch.num_listed), config.target.max_queued
        )
        calls = VerifierCalls(verifier, self._watch, self._admission, config.ingress.verifier_wait_s)
        self._http = HttpMetrics(self._access.history.handled)
        self._answers = Answers(served, calls, None if config.traces is None else TraceRecorder(config.traces))

    @property
    def tasks(self) -> tuple[str, ...]:
        """Those of the bundle that serves."""
        return tuple(self.served().drafts)

    def __serve_build_asgi_app__(self) -> FastAPI:
        operator = ServiceOperator(self._config, serve.get_replica_context().replica_id.unique_id)
        settings, spans = self._config.ingress, self._spans
        return guarded(self, settings, self._access, operator, numbered_by_proxy=True, spans=spans)

    def describe(self) -> dict[str, object]:
        """The properties of the model for /v1/models."""
        target, draft = self._config.target, self._config.draft
        return {
            "target": target.model,
            "draft": draft.model,
            "dtype": target.dtype,
            "decoder": target.decoder,
            "numerics": target.numerics,
            "context": self.context,
            "bundle": self.served().version,
            "tasks": list(self.tasks),
            "num_speculative_tokens": draft.num_speculative_tokens,
        }

    def generate(self, requests: list[GenerationRequest], speculation: Speculation) -> AsyncGenerator[ChoiceRun, None]:
        """See `Service.generate`."""
        return self._answers.generate(requests, speculation)

    async def healthy(self) -> bool:
        """True if a verifier runs, however busy it is; known at once."""
        self._watch.begin()
        return self._watch.running

    async def metrics(self) -> str:
        """See `Service.metrics`."""
        return await cluster_metrics()

    def counts(self) -> Counter[str]:
        """See `Answers.counts`."""
        return self._answers.counts

    def served(self) -> ServedModels:
        """The configuration and the models of the bundle that serves."""
        return self._answers.served

    def report(self) -> IngressReport:
        """What `taskspec status` and the console show of this replica."""
        return replace(self._answers.report(), activity=self._activity())

    def _activity(self) -> IngressActivity:
        keys, allowances = self._access.keys, self._access.allowances
        return IngressActivity(
            self._answers.minutes(),
            self._access.history.minutes(),
            self._admission.waiting,
            self._admission.running,
            self._config.target.max_queued,
            self._answers.moves,
            self._faults.last,
            None if keys is None else tuple(keys.holders),
            {} if allowances is None else allowances.limited(),
        )

    async def check_health(self) -> None:
        """A replica that answers is healthy."""
        self._watch.begin()
        self._verifiers.set(self._watch.num_listed if self._watch.running else 0)
        self._answers.export()
        self._http.export()

    def __del__(self) -> None:
        """Serve calls this once no request is left, before it ends the replica."""
        self._answers.close()
        self._spans.close()
