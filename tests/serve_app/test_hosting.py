from __future__ import annotations

import io

import pytest
from ray.exceptions import RayTaskError
from rich.console import Console

from serve_app import applications
from serve_app.config import load_config
from serve_app.deployments.served_models import ServedModels
from serve_app.hosting import StartFailed, _deploy


def test_what_an_actor_said_is_told_without_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    said = RuntimeError("Failed to bind to address '0.0.0.0:8000'.")
    raised = RayTaskError("ProxyActor.ready", 'Traceback (most recent call last): File "proxy.py"', said)
    monkeypatch.setattr(applications, "run", lambda *_: (_ for _ in ()).throw(raised.as_instanceof_cause()))
    with pytest.raises(StartFailed) as failed:
        _deploy(ServedModels(load_config("family")), "0.0.0.0", 8000, "127.0.0.1", Console(file=io.StringIO()))
    assert str(failed.value) == str(said)
