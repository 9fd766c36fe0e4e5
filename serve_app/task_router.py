"""The deployment around `core.classifier.TaskClassifier`: prompt ids in, a prior over tasks out."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.config import Router, locate


class TaskRouter:
    """A router replica; `general` in the prior is the mass it abstains with."""

    def __init__(self, config: Router) -> None:
        from core.classifier import TaskClassifier  # imports transformers: seconds the other processes need not pay

        self._classifier = TaskClassifier.load(locate(config.path))

    def route(self, tokens: Sequence[int]) -> dict[str, float]:
        """Probability per task."""
        return self._classifier.predict(tokens)
