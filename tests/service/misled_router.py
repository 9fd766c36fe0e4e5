"""A router that takes some prompts for those of a task that it does not know, and is as sure as ever.

No other prompt is routed there, so what earlier answers taught the service says nothing about this route.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.draft_key import GENERAL
from core.family import TARGET_DIR
from core.text.tokenizer import load_tokenizer
from serve_app.deployments.actors import task_router
from serve_app.spans import Headers
from tests.family.corpora import items

ASTRAY = "astray"  # the task
_SURE = 0.95
_LONG = 480  # characters: the drafts differ most on stories, and an answer of a sentence is over before it could move
MISLED = [item.prompt for item in items("english", 60, 77, "held_out") if len(item.answer) > _LONG]


class TaskRouter(task_router.TaskRouter):
    """The real deployment, under its own name, with its classifier."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._tokenizer = load_tokenizer(TARGET_DIR).raw

    def route(self, tokens: Sequence[int], span_headers: Headers | None = None) -> dict[str, float]:
        """The probability of each task."""
        found = super().route(tokens, span_headers)
        text = self._tokenizer.decode(list(tokens))
        if not any(prompt in text for prompt in MISLED):
            return found
        return {ASTRAY: _SURE, GENERAL: 1.0 - _SURE}
