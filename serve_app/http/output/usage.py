"""The `usage` of an answer, counted over all its choices."""

from __future__ import annotations

from pydantic import BaseModel, Field

from core.generation import Source
from serve_app.http.ledger import AnswerLedger, TokenCounts, Totals, by_source
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
    """The `usage` of what a ledger holds; `predicted` says whether the client sent a prediction."""

    def __init__(self, prompt_tokens: int, *, predicted: bool) -> None:
        self._prompt_tokens = prompt_tokens
        self._predicted = predicted
        self._ledger = AnswerLedger()

    def add(self, choice_run: ChoiceRun) -> None:
        self._ledger.add(choice_run)

    @property
    def finish_reasons(self) -> list[str]:
        """Those of the choices that have finished, as the target's engine tells them."""
        choices = self._ledger.choices.values()
        return [choice.finish_reason for choice in choices if choice.finish_reason is not None]

    def total(self) -> Usage:
        sources = by_source(self._ledger.lines)
        completion_tokens = sum(len(choice.tokens) for choice in self._ledger.choices.values())
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=self._prompt_tokens + completion_tokens,
            completion_tokens_details=_of_prediction(sources) if self._predicted else None,
            speculation=self._speculation(sources),
        )

    def _speculation(self, sources: Totals[Source]) -> SpeculationUsage:
        choices = self._ledger.choices.values()
        passes = sum(choice.passes for choice in choices)
        proposed = sum(counts.proposed for counts in sources.values())
        accepted = sum(counts.accepted for counts in sources.values())
        return SpeculationUsage(
            task=self._ledger.task,
            rerouted=len(self._ledger.tasks_left),
            rerouted_from=self._ledger.tasks_left,
            proposed=proposed,
            accepted=accepted,
            acceptance_rate=accepted / proposed if proposed else None,
            tokens_per_target_pass=sum(choice.tokens_of_passes for choice in choices) / passes if passes else None,
            sources={
                source: SpeculationCounts(proposed=counts.proposed, accepted=counts.accepted)
                for source, counts in sources.items()
            },
        )


def _of_prediction(sources: Totals[Source]) -> CompletionTokensDetails:
    counts = sources.get("prediction", TokenCounts())
    return CompletionTokensDetails(
        accepted_prediction_tokens=counts.accepted,
        rejected_prediction_tokens=counts.proposed - counts.accepted,
    )
