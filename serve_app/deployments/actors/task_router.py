"""The deployment around `core.tasks.classifier.TaskClassifier`: a prior over tasks from the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.deployments.telemetry.replica_log import log_into_replica


class TaskRouter:
    """A router replica. The probability of `general` is that of no task."""

    def __init__(self, directory: str) -> None:
        log_into_replica()
        from core.tasks.classifier import TaskClassifier  # takes seconds, as it imports transformers

        self._classifier = TaskClassifier.load(directory)

    def route(self, tokens: Sequence[int]) -> dict[str, float]:
        """The probability of each task."""
        return self._classifier.predict(tokens)
