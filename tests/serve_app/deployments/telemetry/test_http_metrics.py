"""Responses by key, method and status, each exported once."""

from __future__ import annotations

from collections import Counter

import pytest

from serve_app.deployments.telemetry.http_metrics import HttpMetrics
from serve_app.http.handled import NO_KEY, Handled
from tests.serve_app.deployments.telemetry.recording import recorded_values


def test_responses_are_exported_once_and_sheds_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = recorded_values(monkeypatch, "taskspec_http_")
    handled = Counter(
        [
            *[Handled("alice", "POST", 200, shed=False)] * 3,
            Handled("alice", "POST", 429, shed=False),
            *[Handled("bob", "POST", 503, shed=True)] * 2,
            Handled("bob", "POST", 503, shed=False),
            Handled(NO_KEY, "GET", 200, shed=False),
        ]
    )
    http = HttpMetrics(handled)
    http.export()
    http.export()
    handled[Handled("alice", "POST", 200, shed=False)] += 1
    http.export()
    assert recorded == {
        ("responses", "alice", "POST", "200"): [3, 1],
        ("responses", "alice", "POST", "429"): [1],
        ("responses", "bob", "POST", "503"): [2, 1],
        ("sheds", "bob"): [2],
        ("responses", "-", "GET", "200"): [1],
    }
