"""The `usage` of an answer, counted over all its choices."""

from __future__ import annotations

from collections import Counter

from core.draft_key import GENERAL
from core.generation import Source
from serve_app.openai.responses import CompletionTokensDetails, SpeculationCounts, SpeculationUsage, Usage
from serve_app.openai.service import ChoiceRun


class UsageCount:
    """Counts tokens, proposals by source, and target passes; `predicted` says whether the client sent a prediction.

    The prefill does not count as a target pass, so the first run of a choice adds to the tokens only.
    """

    def __init__(self, prompt_tokens: int, *, predicted: bool) -> None:
        self._prompt_tokens = prompt_tokens
        self._predicted = predicted
        self._completion_tokens = 0
        self._proposed: Counter[Source] = Counter()
        self._accepted: Counter[Source] = Counter()
        self._passes = 0
        self._tokens_of_passes = 0
        self._task = GENERAL
        self._tasks: dict[int, str] = {}  # of the drafts that proposed last, by choice
        self._left: list[str] = []
        self._begun: set[int] = set()

    def add(self, choice_run: ChoiceRun) -> None:
        choice, run = choice_run.choice, choice_run.run
        self._completion_tokens += len(run.tokens)
        self._proposed[run.source] += run.proposed
        self._accepted[run.source] += run.accepted
        if run.proposed and run.source == "draft":
            self._proposed_by(choice, choice_run.task)
        if choice in self._begun:
            self._passes += 1
            self._tokens_of_passes += len(run.tokens)
        self._begun.add(choice)

    def _proposed_by(self, choice: int, task: str) -> None:
        self._task = task
        before = self._tasks.get(choice, task)
        self._tasks[choice] = task
        if before != task:
            self._left.append(before)

    def total(self) -> Usage:
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            total_tokens=self._prompt_tokens + self._completion_tokens,
            completion_tokens_details=self._of_prediction() if self._predicted else None,
            speculation=self._speculation(),
        )

    def _speculation(self) -> SpeculationUsage:
        proposed, accepted = self._proposed.total(), self._accepted.total()
        return SpeculationUsage(
            task=self._task,
            rerouted=len(self._left),
            rerouted_from=self._left,
            proposed=proposed,
            accepted=accepted,
            acceptance_rate=accepted / proposed if proposed else None,
            tokens_per_target_pass=self._tokens_of_passes / self._passes if self._passes else None,
            sources={
                source: SpeculationCounts(proposed=number, accepted=self._accepted[source])
                for source, number in self._proposed.items()
                if number
            },
        )

    def _of_prediction(self) -> CompletionTokensDetails:
        accepted = self._accepted["prediction"]
        return CompletionTokensDetails(
            accepted_prediction_tokens=accepted,
            rejected_prediction_tokens=self._proposed["prediction"] - accepted,
        )
