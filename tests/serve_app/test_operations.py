"""What operators see and set, of a Serve that is faked; tests/service has a real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.common import ReplicaState
from ray.serve.config import HTTPOptions, ProxyLocation
from ray.serve.schema import DeploymentSchema

from core.errors import ConfigError
from serve_app import operations, ray_private
from serve_app.access_config import KEYED
from serve_app.application_names import draft_key, pool_application
from serve_app.deployments.telemetry.reports import IngressReport
from serve_app.operations import (
    NOT_DEPLOYED,
    Listener,
    NoService,
    asks_for_keys,
    serve_listener,
    service_status,
    set_replicas,
)

WITH_OTHER_LETTERS = "数学"


def deployment(name: str, states: str = "RUNNING", **settings: Any) -> Any:
    known = {"actor_name": name, "replica_id": "one", "node_ip": "10.0.0.1", "start_time_s": 86_400.0}
    replicas = [SimpleNamespace(state=ReplicaState(state), **known) for state in states.split()]
    return SimpleNamespace(
        name=name,
        replicas=replicas,
        status=SimpleNamespace(value="HEALTHY"),
        target_num_replicas=len(replicas),
        message="",
        deployment_config=DeploymentSchema(name=name, **settings),
    )


def application(name: str, *deployments: Any, scalable: bool = True) -> Any:
    return SimpleNamespace(
        name=name,
        last_deployed_time_s=86_400.0,
        external_scaler_enabled=scalable,
        deployments={one.name: one for one in deployments},
    )


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The applications that Serve runs; replicas of the ingress tell of three tasks, others of two sessions each."""
    chinese = pool_application(draft_key(WITH_OTHER_LETTERS))
    running = [
        application("taskspec", deployment("TargetVerifier"), deployment("SpeculativeIngress", "RUNNING RUNNING")),
        application("draft-general", deployment("DraftPool", "RUNNING STOPPING STARTING")),
        application("draft-old", deployment("DraftPool", ""), scalable=False),
        application("router@feed", deployment("TaskRouter")),
        application("router@old", deployment("TaskRouter")),
        application(chinese, deployment("DraftPool", autoscaling_config={"min_replicas": 1})),
    ]
    pools = {"draft-general": "general", "draft-math@12": "math", chinese: WITH_OTHER_LETTERS}
    proposed, accepted = Counter({"draft-general": 10}), Counter({"draft-general": 4})
    report = IngressReport("m", "v1", pools, "/parts/feed", proposed, accepted, Counter(written=1))
    answers = {"report": report, "counts": Counter(sessions=2, pages=3, free_pages=5)}

    def asked(names: Sequence[str], method: str, _: float) -> list[Any]:
        return [answers[method]] * len(names) if method in answers else []

    monkeypatch.setattr(ray_private, "call_replicas", asked)
    applications = {one.name: one for one in running}
    monkeypatch.setattr(operations, "_applications", lambda: applications)
    return applications


@pytest.mark.usefixtures("serving")
def test_every_part_is_told_with_its_replicas_sessions_and_acceptance() -> None:
    status = service_status()
    told = [
        (one.name, one.state, one.running, one.target, one.sessions, one.proposed, one.accepted) for one in status.parts
    ]
    assert told == [
        ("ingress", "HEALTHY", 2, 2, None, None, None),
        ("target", "HEALTHY", 1, 1, 2, None, None),
        ("router", "HEALTHY", 1, 1, None, None, None),
        ("general", "HEALTHY", 1, 3, 4, 20, 8),  # the replica that ends its sessions has two as well
        ("math", NOT_DEPLOYED, 0, 0, None, 0, 0),
        (WITH_OTHER_LETTERS, "HEALTHY", 1, 1, 2, 0, 0),
        ("draft-old", "HEALTHY", 0, 0, 0, 0, 0),
        ("router@old", "HEALTHY", 1, 1, None, None, None),
    ]
    assert status.deployed.isoformat() == "1970-01-02T00:00:00+00:00"
    assert status.report is not None
    assert (status.report.model, status.report.bundle, status.report.traces) == ("m", "v1", {"written": 2})


@pytest.mark.usefixtures("serving")
def test_a_service_whose_replicas_do_not_answer_is_told_as_far_as_serve_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_private, "call_replicas", lambda *_: [])
    status = service_status()
    assert status.report is None
    assert [one.name for one in status.parts][:3] == ["ingress", "target", "draft-general"]
    assert {(one.sessions, one.proposed) for one in status.parts if one.running} == {(None, None)}


def test_whether_a_service_asks_for_keys_is_known_also_while_none_of_its_replicas_runs(
    serving: dict[str, Any],
) -> None:
    def deployed(**environment: str) -> Any:
        options = {"runtime_env": {"env_vars": environment}}
        return application("taskspec", deployment("SpeculativeIngress", "", ray_actor_options=options))

    serving["taskspec"] = deployed(OTHER="1")
    assert not asks_for_keys()
    serving["taskspec"] = deployed(**{KEYED: "1"})
    assert asks_for_keys()
    del serving["taskspec"]
    assert not asks_for_keys()


class Controller:
    """Serve's, with these HTTP options."""

    def __init__(self, options: HTTPOptions, location: ProxyLocation | None) -> None:
        self.get_http_config = SimpleNamespace(remote=lambda: options)
        self.get_proxy_location = SimpleNamespace(remote=lambda: location)


def listener(monkeypatch: pytest.MonkeyPatch, controller: Controller | None) -> Listener | None:
    monkeypatch.setattr(ray_private, "controller", lambda: controller)
    monkeypatch.setattr(operations, "ray", SimpleNamespace(get=lambda results: results))
    return serve_listener()


def test_serves_own_http_options_are_told_and_none_without_a_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    assert listener(monkeypatch, None) is None
    told = Controller(HTTPOptions(host="0.0.0.0", port=8100), ProxyLocation.EveryNode)
    assert listener(monkeypatch, told) == Listener("0.0.0.0", 8100)
    left_to_serve = Controller(HTTPOptions(), ProxyLocation.HeadOnly)
    assert listener(monkeypatch, left_to_serve) == Listener("127.0.0.1", 8000)


@pytest.mark.parametrize(
    "controller",
    [
        Controller(HTTPOptions(), ProxyLocation.Disabled),
        Controller(HTTPOptions(), None),
        Controller(HTTPOptions(host=None), ProxyLocation.HeadOnly),
    ],
)
def test_a_serve_without_http_is_told_before_anything_is_deployed(
    monkeypatch: pytest.MonkeyPatch, controller: Controller
) -> None:
    with pytest.raises(ConfigError, match="without HTTP proxies"):
        listener(monkeypatch, controller)


def test_a_cluster_without_a_service_is_told(serving: dict[str, Any]) -> None:
    del serving["taskspec"]
    with pytest.raises(NoService, match="taskspec serve --address"):
        service_status()


@pytest.mark.parametrize(
    ("name", "replicas", "told"),
    [
        ("maths", 2, "no part 'maths'; write one of ingress, target, router, general, math"),
        ("math", 2, "draft-math@12 is not deployed"),
        (WITH_OTHER_LETTERS, 2, "Change `autoscaling`"),
        ("draft-old", 2, "was not deployed by `taskspec serve`"),
        ("target", 0, "write 1 or more"),
        ("ingress", 0, "write 1 or more"),
    ],
)
@pytest.mark.usefixtures("serving")
def test_what_cannot_be_scaled_is_told_before_anything_changes(
    monkeypatch: pytest.MonkeyPatch, name: str, replicas: int, told: str
) -> None:
    monkeypatch.setattr(ray_private, "controller", None)  # nothing is asked of Serve
    with pytest.raises(ConfigError, match=told):
        set_replicas({"general": 2, name: replicas})
