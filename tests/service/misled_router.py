"""A router that mistakes one task for the next where a prompt says so, and is as sure as ever."""

from __future__ import annotations

from collections.abc import Sequence

from core.family import TARGET_DIR
from core.tasks import GENERAL
from core.text.tokenizer import load_tokenizer
from serve_app.deployments import task_router

ASTRAY = "(astray)"  # in a prompt


class TaskRouter(task_router.TaskRouter):
    """The real deployment, under its own name, with its classifier."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._tokenizer = load_tokenizer(TARGET_DIR).raw

    def route(self, tokens: Sequence[int]) -> dict[str, float]:
        """The probability of each task, or of the task before it."""
        found = super().route(tokens)
        if ASTRAY not in self._tokenizer.decode(list(tokens)):
            return found
        tasks = [task for task in found if task != GENERAL]
        return {task: found[before] for task, before in zip(tasks, [tasks[-1], *tasks], strict=False)} | {
            GENERAL: found[GENERAL]
        }
