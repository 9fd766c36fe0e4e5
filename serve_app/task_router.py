"""The deployment around `core.classifier.TaskClassifier`: prompt ids in, a prior over tasks out."""

from __future__ import annotations

from collections.abc import Sequence


class TaskRouter:
    """A router replica; `general` in the prior is the mass it abstains with."""

    def __init__(self, directory: str) -> None:
        from core.classifier import TaskClassifier  # imports transformers: seconds the other processes need not pay

        self._classifier = TaskClassifier.load(directory)

    def route(self, tokens: Sequence[int]) -> dict[str, float]:
        """Probability per task."""
        return self._classifier.predict(tokens)
