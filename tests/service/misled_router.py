"""A router that takes prompts that say so for prompts of a task that it does not know, and is as sure as ever.

No other prompt is routed there, so what earlier answers taught the service says nothing about this route.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.family import TARGET_DIR
from core.tasks import GENERAL
from core.text.tokenizer import load_tokenizer
from serve_app.deployments import task_router

ASTRAY = "astray"  # the task; in a prompt, what leads there
_SURE = 0.95


class TaskRouter(task_router.TaskRouter):
    """The real deployment, under its own name, with its classifier."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._tokenizer = load_tokenizer(TARGET_DIR).raw

    def route(self, tokens: Sequence[int]) -> dict[str, float]:
        """The probability of each task."""
        found = super().route(tokens)
        if ASTRAY not in self._tokenizer.decode(list(tokens)):
            return found
        return {ASTRAY: _SURE, GENERAL: 1.0 - _SURE}
