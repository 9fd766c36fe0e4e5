from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.exceptions import RayTaskError
from ray.serve import RunTarget
from ray.serve.schema import ApplicationStatus
from rich.console import Console

from serve_app.application_names import CORE
from serve_app.config import load_config
from serve_app.deployments.deploy import applications, deploy_service, nodes
from serve_app.deployments.models.served_models import ServedModels
from serve_app.hosting import StartFailed, _deploy, _replace


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose nodes could be asked."""
    monkeypatch.setattr(nodes, "cluster", nodes.Cluster)


def test_what_an_actor_said_is_told_without_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    said = RuntimeError("Failed to bind to address '0.0.0.0:8000'.")
    raised = RayTaskError("ProxyActor.ready", 'Traceback (most recent call last): File "proxy.py"', said)
    monkeypatch.setattr(deploy_service, "run", lambda *_: (_ for _ in ()).throw(raised.as_instanceof_cause()))
    with pytest.raises(StartFailed) as failed:
        _deploy(ServedModels(load_config("family")), "0.0.0.0", 8000, "127.0.0.1", Console(file=io.StringIO()))
    assert str(failed.value) == str(said)


@pytest.mark.parametrize("comes_up", [True, False])
def test_where_a_part_does_not_come_up_the_service_before_runs_again(
    monkeypatch: pytest.MonkeyPatch, *, comes_up: bool
) -> None:
    before, new = ServedModels(load_config("family")), ServedModels(load_config("smollm2"))
    deployed: list[str] = []

    def run(every: Sequence[RunTarget], *_: object) -> Iterator[int]:
        deployed.append(every[0].name)
        if every[0].name == "new" or not comes_up:
            raise deploy_service.DeployFailed("taskspec was not deployed: ConfigError: too small", frozenset())
        yield len(every)

    def targets(served: ServedModels, *_: object) -> list[Any]:
        return [SimpleNamespace(name="new" if served is new else "before")]

    monkeypatch.setattr(deploy_service, "served_now", lambda: before)
    monkeypatch.setattr(applications, "targets", targets)
    monkeypatch.setattr(deploy_service, "run", run)
    with pytest.raises(StartFailed, match="too small") as failed:
        _replace(new, "127.0.0.1", 8000, "127.0.0.1", Console(file=io.StringIO()))
    assert deployed == ["new", "before"]
    assert ("The service before runs again" in str(failed.value)) == comes_up


def test_ingress_and_verifier_are_replaced_last_and_started_with_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    applied = [SimpleNamespace(name=name) for name in ("draft-general", CORE, "router@1")]
    running: dict[str, Any] = {}
    waves: list[list[str]] = []

    def run_many(wave: list[Any], **_: object) -> None:
        waves.append([one.name for one in wave])
        running.update({one.name: SimpleNamespace(status=ApplicationStatus.RUNNING) for one in wave})

    fake = SimpleNamespace(
        start=lambda **_: None, run_many=run_many, status=lambda: SimpleNamespace(applications=dict(running))
    )
    monkeypatch.setattr(deploy_service, "serve", fake)
    monkeypatch.setattr(deploy_service, "POLL_SECONDS", 0.0)
    for expected in ([["draft-general", CORE, "router@1"]], [["draft-general", "router@1"], [CORE]]):
        waves.clear()
        counts = list(deploy_service.run(cast("list[RunTarget]", applied), "127.0.0.1", 8000))
        assert waves == expected
        assert counts[-1] == len(applied)
        assert max(counts) <= len(applied)


@pytest.mark.parametrize("failing", ["draft-general", CORE])
def test_what_was_not_replaced_yet_is_not_deployed_again(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """Where a pool does not come up, ingress and verifier go on as they are."""
    before, new = ServedModels(load_config("family")), ServedModels(load_config("smollm2"))
    running = {CORE: SimpleNamespace(status=ApplicationStatus.RUNNING)}
    deployed: list[str] = []

    def run_many(wave: list[Any], **_: object) -> None:
        for one in wave:
            deployed.append(f"{one.of} {one.name}")
            failed = one.of == "new" and one.name == failing
            status = ApplicationStatus.DEPLOY_FAILED if failed else ApplicationStatus.RUNNING
            running[one.name] = SimpleNamespace(status=status, deployments={}, message="too small")

    def targets(served: ServedModels, *_: object) -> list[Any]:
        return [SimpleNamespace(of="new" if served is new else "before", name=name) for name in ("draft-general", CORE)]

    fake = SimpleNamespace(
        start=lambda **_: None, run_many=run_many, status=lambda: SimpleNamespace(applications=dict(running))
    )
    monkeypatch.setattr(deploy_service, "serve", fake)
    monkeypatch.setattr(deploy_service, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(deploy_service, "served_now", lambda: before)
    monkeypatch.setattr(applications, "targets", targets)
    with pytest.raises(StartFailed, match="The service before runs again"):
        _replace(new, "127.0.0.1", 8000, "127.0.0.1", Console(file=io.StringIO()))
    again = [one.removeprefix("before ") for one in deployed if one.startswith("before")]
    assert again == (["draft-general"] if failing == "draft-general" else ["draft-general", CORE])
