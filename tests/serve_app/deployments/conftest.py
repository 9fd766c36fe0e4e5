"""The rollout of these tests, whose Serve and whose store of Ray are faked."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from serve_app.deployments.deploy import bundle_pools, rollout
from tests.serve_app.deployments.deploy.rollout_place import Place, Serve


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    stored: dict[str, bytes] = {}
    monkeypatch.setattr(rollout, "load_value", lambda key: pickle.loads(stored[key]) if key in stored else None)
    monkeypatch.setattr(rollout, "store_value", lambda key, value: stored.update({key: pickle.dumps(value)}))
    monkeypatch.setattr(
        bundle_pools,
        "bundle_targets",
        lambda served: [SimpleNamespace(name=name) for name in sorted(served.applications)],
    )
    serve = Serve()
    monkeypatch.setattr(bundle_pools, "serve", serve)
    monkeypatch.setattr(bundle_pools, "POLL_SECONDS", 0.0)

    def made(**settings: object) -> Place:
        place = Place(tmp_path, serve, **settings)
        monkeypatch.setattr(rollout, "with_version", lambda _, version: place.models(version))
        return place

    return made
