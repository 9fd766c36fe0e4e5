"""What Prometheus is told of a rollout: its state, and which version has which share of the prompts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest

from core.rollout.state import StateName
from serve_app.config import load_config
from serve_app.deployments.models.plan import Plan
from serve_app.deployments.models.served_models import ServedModels, with_bundle
from serve_app.deployments.telemetry.rollout_metrics import RolloutMetrics
from tests.serve_app.deployments.telemetry.recording import Recorded, recorded_values

FIRST = datetime(2026, 11, 27, tzinfo=UTC)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return recorded_values(monkeypatch, "taskspec_rollout_")


def models(version: str | None, created: datetime | None = FIRST) -> ServedModels:
    return ServedModels(load_config("family"), version=version, created=created)


def test_a_canary_comes_serves_and_the_version_before_is_left_with_nothing_and_forgotten(recorded: Recorded) -> None:
    rollout = RolloutMetrics()
    rollout.export("steady", Plan(1, models("v1")))
    rollout.export("canary", Plan(2, models("v1"), models("v2"), 0.25))
    for _ in range(2):
        rollout.export("steady", Plan(3, models("v2")))
    assert recorded["share", "v1"] == [1.0, 0.75, 0.0]
    assert recorded["share", "v2"] == [0.25, 1.0, 1.0]
    assert recorded["state", "canary"] == [0.0, 1.0, 0.0, 0.0]
    assert recorded["state", "steady"] == [1.0, 0.0, 1.0, 1.0]
    assert {state for name, state in recorded if name == "state"} == set(get_args(StateName))


def test_each_version_in_use_has_the_time_when_it_was_made(recorded: Recorded) -> None:
    shipped = with_bundle(load_config("family"))
    assert shipped.version is not None
    assert shipped.created is not None
    RolloutMetrics().export("canary", Plan(1, models(None, created=None), shipped, 0.5))
    assert recorded["created_timestamp_seconds", shipped.version] == [shipped.created.timestamp()]
    assert ("created_timestamp_seconds", "none") not in recorded
    assert recorded["share", "none"] == [0.5]
