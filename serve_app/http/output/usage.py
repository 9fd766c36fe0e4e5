"""The `usage` of an answer, counted over all its choices."""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, Field

from core.generation import Source
from core.tasks import GENERAL
from serve_app.http.service import ChoiceRun


def absent(value: object) -> bool:
    """For fields that are left out of a body where they are null."""
    return value is None


class SpeculationCounts(BaseModel):
    proposed: int
    accepted: int


class SpeculationUsage(BaseModel):
    task: str = Field(description="The task whose draft proposed last; general if none did.")
    rerouted: int = Field(description="Times that a choice went on with another task's draft.")
    rerouted_from: list[str] = Field(description="The task that was left, each time.")
    proposed: int = Field(description="Proposed tokens that the target verified.")
    accepted: int
    acceptance_rate: float | None = Field(description="accepted / proposed; null if nothing was proposed.")
    tokens_per_target_pass: float | None = Field(
        description="Tokens per pass, plain passes included, the prefill not; null without such a pass."
    )
    sources: dict[Source, SpeculationCounts] = Field(
        description="By who proposed: a draft, the text of the request and its answer, earlier answers, a prediction, "
        "or the grammar of the answer."
    )


class CompletionTokensDetails(BaseModel):
    accepted_prediction_tokens: int = Field(description="Tokens of the prediction that were proposed and accepted.")
    rejected_prediction_tokens: int = Field(description="Tokens of it that were proposed and are not in the answer.")


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int = Field(description="Committed tokens, the end-of-sequence token included.")
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails | None = Field(
        None, exclude_if=absent, description="Only with `prediction`."
    )
    speculation: SpeculationUsage


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
