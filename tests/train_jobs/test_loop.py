"""A service learns a task from its own traffic and takes it up, while no answer fails or changes."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from core.bundle.store import Bundle, live_version, open_version
from core.tasks.identity import TaskCentroids, TaskChange, compare
from tests.serve_app.traffic import gain
from tests.train_jobs.loop import ANSWERS, KNOWN, NEW, Loop

pytestmark = [pytest.mark.cluster, pytest.mark.soak]  # five minutes


def bundles(looped: Loop) -> tuple[Bundle, Bundle]:
    """The first, and what came of it."""
    first, new = (open_version(looped.config.bundles, version) for version in (looped.first, looped.version))
    return first, new


def test_every_answer_is_that_without_speculation(looped: Loop) -> None:
    assert len(looped.answers) > 200
    assert [one.number for one in looped.answers if one.tokens != looped.plain[one.number]] == []


def test_drift_was_the_reason(looped: Loop) -> None:
    assert looped.drift["version"] == looped.first
    assert looped.drift["answers"] >= ANSWERS
    assert "task mix" in looped.drift["verdict"] or "distance" in looped.drift["verdict"]


def test_tasks_are_recognised_and_one_is_new(looped: Loop) -> None:
    changes = changed(looped)
    assert Counter(one.what for one in changes) == {"kept": len(KNOWN), "new": 1}
    assert all(one.before == one.after for one in changes if one.what == "kept")


def changed(looped: Loop) -> tuple[TaskChange, ...]:
    old, new = (bundle.centroids for bundle in bundles(looped))
    assert old is not None
    assert new is not None
    return compare(TaskCentroids.load(old), TaskCentroids.load(new))


def test_the_new_bundle_is_live_and_drafts_better(looped: Loop) -> None:
    """By its shadow, an exact replay. What the service gains depends on how busy the machine is, and is only told."""
    assert live_version(looped.config.bundles) == looped.status["bundle"] == looped.version
    assert (looped.shadow["candidate"], looped.shadow["against"]) == (looped.version, looped.first)
    assert looped.shadow["verdict"] == "better"
    replayed = looped.shadow["all"]["tokens_per_pass"]
    assert replayed["candidate"]["value"] >= 1.25 * replayed["against"]["value"]
    gains = {tasks: gain(looped.answers, tasks, looped.before, looped.after) for tasks in (KNOWN, (NEW,))}
    sys.stdout.write(f"tokens per target pass: {gains}\n")


def test_ctrl_c_leaves_nothing(looped: Loop) -> None:
    assert looped.left == []
