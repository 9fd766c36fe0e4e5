"""Whose drafts proposed for an answer, and how often a choice went on with another's."""

from __future__ import annotations

from core.generation import Run
from serve_app.http.output.usage import SpeculationUsage, UsageCount
from serve_app.http.service import ChoiceRun

PLAIN, DRAFTED = Run((5,)), Run((5, 6), proposed=3, accepted=1)


def used(*runs: tuple[int, str, Run]) -> SpeculationUsage:
    usage = UsageCount(3, predicted=False)
    for choice, task, run in runs:
        usage.add(ChoiceRun(choice, run, task))
    return usage.total().speculation


def test_the_task_is_that_of_the_draft_that_proposed_last() -> None:
    found = used((0, "general", PLAIN), (0, "math", DRAFTED), (0, "general", PLAIN))
    assert (found.task, found.rerouted, found.rerouted_from) == ("math", 0, [])


def test_without_proposals_there_is_no_task() -> None:
    assert used((0, "math", PLAIN)).task == "general"


def test_every_choice_is_rerouted_by_itself() -> None:
    found = used(
        (0, "math", DRAFTED), (1, "code", DRAFTED), (0, "general", DRAFTED), (1, "code", DRAFTED), (0, "code", DRAFTED)
    )
    assert (found.task, found.rerouted, found.rerouted_from) == ("code", 2, ["math", "general"])
