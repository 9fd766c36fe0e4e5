"""The format of the log is that of every replica of the service, and of its proxies."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.build_app import build_app
from ray.serve.schema import LoggingConfig

from core.errors import ConfigError
from serve_app.config import LogFormat, load_config
from serve_app.deployments.deploy import deploy_service
from serve_app.deployments.deploy.applications import targets
from serve_app.deployments.models.served_models import with_bundle


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_every_replica_and_every_proxy_logs_in_the_format(
    monkeypatch: pytest.MonkeyPatch, log_format: LogFormat
) -> None:
    served = with_bundle(load_config("family").model_copy(update={"log_format": log_format}))
    every = targets(served)
    deployments = [one for target in every for one in build_app(target.target, name=target.name).deployments]
    names = {"SpeculativeIngress", "TargetVerifier", "TaskRouter", "DraftPool", "DraftCheck", "Rollout"}
    assert {one.name for one in deployments} == names
    said: list[Any] = [one.logging_config for one in deployments]
    states: Any = SimpleNamespace(applications={})
    fake = SimpleNamespace(
        start=lambda **options: said.append(options["logging_config"]), run_many=lambda *_, **__: None
    )
    monkeypatch.setattr(deploy_service, "serve", SimpleNamespace(**vars(fake), status=lambda: states))
    assert list(deploy_service.run([], "127.0.0.1", 8000, log_format)) == []
    every_config = [LoggingConfig(**one) for one in said]
    assert {(one.encoding, one.enable_access_log) for one in every_config} == {(log_format.upper(), False)}


def test_another_format_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: a\ntarget: {model: a}\ndraft: {model: b}\nlog_format: xml\n")
    with pytest.raises(ConfigError, match=r"log_format: .*'text' or 'json'"):
        load_config(file)
