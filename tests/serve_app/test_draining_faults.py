"""What `taskspec drain` says of a node that Ray does not drain, and of one that serves for too long."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import ray

from serve_app import draining, ray_private
from serve_app.draining import NotDrained, drain


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What Ray refuses, and what serves on this node, for a test to set."""
    settings = SimpleNamespace(refusal="", parts=list[str]())
    node = SimpleNamespace(get_node_id=lambda: "node")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: node)
    monkeypatch.setattr(ray_private, "announce_departure", lambda _node, _seconds: settings.refusal)
    monkeypatch.setattr(draining, "serving_on", lambda _node: settings.parts)
    monkeypatch.setattr(draining, "LOOK_EVERY", 0.01)
    return settings


def test_a_node_that_serves_nothing_is_drained(replies: SimpleNamespace) -> None:
    assert replies.parts == []
    drain(0.1)


def test_a_refusal_is_told(replies: SimpleNamespace) -> None:
    replies.refusal = "it is gone"
    with pytest.raises(NotDrained, match="Ray does not drain this node: it is gone"):
        drain(0.1)


def test_what_still_serves_after_that_time_is_told(replies: SimpleNamespace) -> None:
    replies.parts = ["a replica", "a proxy"]
    with pytest.raises(NotDrained, match=r"still on this node after 0\.1 s: a replica, a proxy"):
        drain(0.1)
