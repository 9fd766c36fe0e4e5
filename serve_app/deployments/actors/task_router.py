"""The deployment around `core.tasks.classifier.TaskClassifier`: a prior over tasks from the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.deployments.telemetry.replica_log import log_into_replica
from serve_app.spans import Headers, open_spans


class TaskRouter:
    """A router replica. The probability of `general` is that of no task."""

    def __init__(self, directory: str) -> None:
        log_into_replica()
        self._spans = open_spans("router")
        from core.tasks.classifier import TaskClassifier  # takes seconds, as it imports transformers

        self._classifier = TaskClassifier.load(directory)

    def route(self, tokens: Sequence[int], span_headers: Headers | None = None) -> dict[str, float]:
        """The probability of each task. `span_headers` tell the span of the request."""
        with self._spans.span("route", span_headers) as span:
            chances = self._classifier.predict(tokens)
            task = max(chances, key=lambda name: chances[name])
            span.note({"taskspec.task": task, "taskspec.probability": chances[task]})
            return chances

    def __del__(self) -> None:
        """Serve calls this once no request is left, before it ends the replica."""
        self._spans.close()
