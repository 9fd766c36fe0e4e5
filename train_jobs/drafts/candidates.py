"""The drafts that compete for a slot, and the name under which each is trained and scored."""

from __future__ import annotations

from core.draft_key import GENERAL

LIVE = "live"  # the draft that serves the slot when the retraining begins
BASE = "base"  # a full fine-tune of the draft on all tasks; everything after it starts from it
CONTINUED = "continued"  # the base, trained on for as many steps as all adapters together
MIXED = "mixed"  # one adapter of the base for all tasks, in as many steps
TASK = "task"  # the adapter of one task
# In order of promotion: each must beat the best before it. `GENERAL` is the un-adapted draft.
SINGLE_DRAFTS = (LIVE, GENERAL, BASE, CONTINUED, MIXED)


def draft_name(kind: str, slot: str, task: int | None, seed: int) -> str:
    """Name of a candidate for `slot`: of the training run that makes it, and of its scores."""
    if kind == GENERAL:
        return GENERAL
    if kind == LIVE:
        return f"{LIVE}-{slot}"
    return f"{TASK}-{task}-seed-{seed}" if kind == TASK else f"{kind}-seed-{seed}"


def trial_name(name: str, rank: int) -> str:
    """Name of the run that tries a rank for the adapter `name`."""
    return f"{name}-rank-{rank}"
