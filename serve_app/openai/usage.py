"""What one HTTP request used, over all its choices: runs enter, the `usage` of its answer leaves."""

from __future__ import annotations

from core.generation import Run
from serve_app.openai.responses import SpeculationUsage, Usage


class UsageCount:
    """Counts tokens, proposals and target passes.

    The first run of a choice comes out of the prefill, which is not a target pass: it adds to the tokens only.
    """

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0
        self._proposed = 0
        self._accepted = 0
        self._passes = 0
        self._tokens_of_passes = 0
        self._task: str | None = None
        self._begun: set[int] = set()

    def add(self, choice: int, run: Run, task: str) -> None:
        self._completion_tokens += len(run.tokens)
        self._proposed += run.proposed
        self._accepted += run.accepted
        self._task = task
        if choice in self._begun:
            self._passes += 1
            self._tokens_of_passes += len(run.tokens)
        self._begun.add(choice)

    def total(self) -> Usage:
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            total_tokens=self._prompt_tokens + self._completion_tokens,
            speculation=SpeculationUsage(
                task=self._task,
                proposed=self._proposed,
                accepted=self._accepted,
                acceptance_rate=self._accepted / self._proposed if self._proposed else None,
                tokens_per_target_pass=self._tokens_of_passes / self._passes if self._passes else None,
            ),
        )
