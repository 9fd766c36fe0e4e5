"""The gate: only what is better beyond doubt takes a slot, and it says why."""

from __future__ import annotations

import pytest

from core.acceptance import Acceptance
from core.gate import choose

PROMPTS = range(40)


def accepting(*rates: int) -> list[Acceptance]:
    """Of ten proposed a prompt, so many accepted, the rates taken in turn."""
    return [Acceptance(10, 5, 10, rates[prompt % len(rates)]) for prompt in PROMPTS]


def test_the_best_of_all_takes_the_slot() -> None:
    drafts = {"general": accepting(3, 4), "mixed": accepting(5, 6), "task": accepting(7, 8)}
    choice = choose(drafts, PROMPTS)
    assert choice.name == "task"
    assert "mixed +0.200 (+0.200 to +0.200), better than general" in choice.reason
    assert "task +0.200 (+0.200 to +0.200), better than mixed" in choice.reason
    assert choice.reason.startswith("on 40 prompts")


def test_a_draft_that_may_be_no_better_does_not() -> None:
    drafts = {"general": accepting(4, 4), "task": accepting(0, 9)}  # better on average, by no sure margin
    choice = choose(drafts, PROMPTS)
    assert choice.name == "general"
    assert "not better than general" in choice.reason


def test_a_later_candidate_must_beat_the_one_that_took_the_slot() -> None:
    drafts = {"general": accepting(3), "mixed": accepting(8), "task": accepting(6)}
    assert choose(drafts, PROMPTS).name == "mixed"


def test_whoever_is_alone_keeps_the_slot_and_nothing_cannot_be_compared() -> None:
    assert choose({"live": accepting(1)}, PROMPTS) == ("live", "the only candidate")
    with pytest.raises(ValueError, match="no records"):
        choose({"live": [], "task": []}, [])
