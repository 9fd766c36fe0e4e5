"""What an operator sees of a running service and changes in it, by a command or on the console.

This process is connected to the Ray of the service, or is one of it. States and replicas are Serve's own, counts are
those of the replicas. Everything here waits for an answer, so a replica calls it in a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.serve.config import ProxyLocation
from ray.serve.schema import ApplicationDetails, DeploymentDetails, ReplicaDetails

from core.errors import ConfigError, TaskSpecError
from serve_app import ray_private
from serve_app.access_config import KEYED
from serve_app.application_names import CORE, DRAFT_CHECK, ROLLOUT, router_application
from serve_app.deployments.telemetry.reports import DraftCheckReport, IngressReport, RolloutReport, together
from serve_app.deployments.telemetry.service_status import ReplicaFacts, ServicePart, ServiceStatus

INGRESS, TARGET, POOL, ROUTER = "SpeculativeIngress", "TargetVerifier", "DraftPool", "TaskRouter"
ROLLOUTS = "Rollout"
CHECK = "DraftCheck"
PARTS = {"ingress": INGRESS, "target": TARGET}
NOT_DEPLOYED = "NOT_DEPLOYED"
PATIENCE = 5.0  # seconds for a replica to answer
UNANSWERED = "the rollout has not answered; `taskspec status` tells whether it has begun all the same"
NO_ROLLOUT = "no rollout answers; a service has one if its configuration names a `bundle` directory"


class NoService(TaskSpecError):
    """The Ray cluster runs none."""


@dataclass(frozen=True)
class Listener:
    """Where Serve's proxies take HTTP requests, each on its node."""

    host: str
    port: int


def service_status() -> ServiceStatus:
    """The service on the Ray cluster of this process. Raises `NoService`."""
    applications = _applications()
    core = applications.get(CORE)
    if core is None:
        raise NoService("no service runs on that Ray cluster; deploy one with `taskspec serve --address HOST:PORT`")
    report = together(_answers(core.deployments.get(INGRESS), "report"))
    deployed = datetime.fromtimestamp(core.last_deployed_time_s, UTC)
    parts = *_core_parts(core), *_of_bundles(applications, report)
    return ServiceStatus(deployed, report, parts, _rollout(applications), _check(applications))


def serve_listener() -> Listener | None:
    """The listener of the Serve on the Ray cluster of this process, which it keeps until it ends; None without a Serve.

    Raises `ConfigError` if Serve takes no HTTP requests. What its public details say of host and port is not asked:
    where they were left to Serve, they have other defaults there.
    """
    controller = ray_private.controller()
    if controller is None:
        return None
    options, location = ray.get([controller.get_http_config.remote(), controller.get_proxy_location.remote()])
    if options.host is None or location in (None, ProxyLocation.Disabled):
        raise ConfigError(
            "Serve runs on that cluster without HTTP proxies, so nothing would answer.\n"
            "End it, which ends all its applications, and deploy again: `serve shutdown`."
        )
    return Listener(options.host, options.port)


def asks_for_keys() -> bool:
    """Whether the service on the Ray cluster of this process asks for API keys, also if none of its replicas runs."""
    core = _applications().get(CORE)
    ingress = None if core is None else core.deployments.get(INGRESS)
    if ingress is None:
        return False
    return KEYED in ingress.deployment_config.ray_actor_options.runtime_env["env_vars"]


def rollout_report() -> RolloutReport:
    """What the rollout of the service tells. Raises `NoService` if there is none, or if it does not answer."""
    report = _rollout(_applications())
    if report is None:
        raise NoService(NO_ROLLOUT)
    return report


def deploy_bundle(version: str, share: float, force: bool) -> str:
    """Let the service take up a bundle, a `share` of its prompts at first if that is not 0; what begins, in words.

    Raises `ConfigError` if it cannot be, and `NoService`.
    """
    rollout = _applications().get(ROLLOUT)
    deployment = None if rollout is None else rollout.deployments.get(ROLLOUTS)
    replicas = [] if deployment is None else deployment.replicas
    running = next((replica for replica in replicas if replica.state == "RUNNING"), None)
    if running is None:
        raise NoService(NO_ROLLOUT)
    try:
        message: str = ray_private.call_replica(running.actor_name or "", "deploy", PATIENCE, version, share, force)
    except RayTaskError as error:
        if isinstance(error.cause, ConfigError):
            raise error.cause from None
        raise
    except (RayError, ValueError) as error:  # ValueError: the replica has ended meanwhile
        raise NoService(f"{UNANSWERED} ({type(error).__name__})") from error
    return message


def _rollout(applications: Mapping[str, ApplicationDetails]) -> RolloutReport | None:
    rollout = applications.get(ROLLOUT)
    reports = [] if rollout is None else _answers(rollout.deployments.get(ROLLOUTS), "report")
    return next(iter(reports), None)


def _check(applications: Mapping[str, ApplicationDetails]) -> DraftCheckReport | None:
    check = applications.get(DRAFT_CHECK)
    reports = [] if check is None else _answers(check.deployments.get(CHECK), "report")
    return next(iter(reports), None)


def set_replicas(replicas: Mapping[str, int]) -> list[ServicePart]:
    """Set the number of replicas of parts by their names; returns the parts as they were before.

    No other replica is touched, and one that has to go ends its sessions first. Raises `ConfigError`, before anything
    is changed, for a part or a number that cannot be.
    """
    parts = {part.name: part for part in service_status().parts}
    chosen = [_scalable(parts, name, number) for name, number in replicas.items()]
    for part in chosen:
        ray_private.set_deployment_replicas(part.application, part.deployment, replicas[part.name])
    return chosen


def scaling_in_words(before: ServicePart, replicas: int) -> str:
    """What `set_replicas` has begun with a part."""
    return f"{before.name}: {before.target} -> {replicas} replicas"


def _scalable(parts: Mapping[str, ServicePart], name: str, replicas: int) -> ServicePart:
    part = parts.get(name)
    if part is None:
        raise ConfigError(f"there is no part {name!r}; write one of {', '.join(parts)}")
    if part.state == NOT_DEPLOYED:
        raise ConfigError(f"{name}: its application {part.application} is not deployed, so there is nothing to scale")
    if part.autoscaled:
        raise ConfigError(
            f"{name}: Serve scales it. Change `autoscaling` in its `actors`, and deploy its application again."
        )
    if not part.scalable:
        raise ConfigError(
            f"{name}: its application {part.application} was not deployed by `taskspec serve`.\n"
            "Write `replicas` in its `actors`, and deploy it as it was deployed before."
        )
    fewest = 0 if part.deployment == POOL else 1
    if replicas < fewest:
        raise ConfigError(f"{name}: {replicas} replicas; write {fewest} or more")
    return part


def _applications() -> dict[str, ApplicationDetails]:
    """What runs on Serve, if it runs."""
    try:
        details = ray_private.serve_details(PATIENCE)
    except GetTimeoutError as error:
        raise NoService(f"Serve has not told in {PATIENCE:g} s what runs; try again") from error
    return {} if details is None else dict(details.applications)


def _core_parts(core: ApplicationDetails) -> list[ServicePart]:
    return [
        _part(name, core, core.deployments[deployment])
        for name, deployment in PARTS.items()
        if deployment in core.deployments
    ]


def _of_bundles(applications: Mapping[str, ApplicationDetails], report: IngressReport | None) -> list[ServicePart]:
    """The router and the pools of the tasks that are served, and others that are deployed, named by their applications.

    Others are those of a bundle on its way in or out.
    """
    named = {router_application(report.router): ("router", ROUTER)} if report and report.router else {}
    named |= {application: (task, POOL) for application, task in report.pools.items()} if report else {}
    others = {
        name: (name, kind)
        for name, application in applications.items()
        for kind in (ROUTER, POOL)
        if kind in application.deployments
    }
    named = named | {name: part for name, part in others.items() if name not in named}
    return [_of_bundle(name, kind, applications.get(app), app, report) for app, (name, kind) in named.items()]


def _of_bundle(
    name: str, kind: str, details: ApplicationDetails | None, application: str, report: IngressReport | None
) -> ServicePart:
    if details is None or kind not in details.deployments:
        part = ServicePart(name, application, kind, NOT_DEPLOYED)
    else:
        part = _part(name, details, details.deployments[kind])
    if report is None or kind != POOL:
        return part
    return replace(part, proposed=report.proposed[application], accepted=report.accepted[application])


def _part(name: str, application: ApplicationDetails, deployment: DeploymentDetails) -> ServicePart:
    counts = _answers(deployment, "counts") if deployment.name in (TARGET, POOL) else []
    counted = bool(counts) or (deployment.name == POOL and not deployment.replicas)
    total = sum(counts, Counter[str]())
    return ServicePart(
        name,
        application.name,
        deployment.name,
        deployment.status.value,
        sum(replica.state == "RUNNING" for replica in deployment.replicas),
        deployment.target_num_replicas,
        deployment.message,
        deployment.deployment_config.is_autoscaling_configured(),
        application.external_scaler_enabled,
        total["sessions"] if counted else None,
        pages=total["pages"] if counted else None,
        free_pages=total["free_pages"] if counted else None,
        replicas=tuple(map(_replica, deployment.replicas)),
    )


def _replica(replica: ReplicaDetails) -> ReplicaFacts:
    since = datetime.fromtimestamp(replica.start_time_s, UTC).isoformat(timespec="seconds")
    return ReplicaFacts(replica.replica_id, replica.state.value, replica.node_ip, since)


def _answers(deployment: DeploymentDetails | None, method: str) -> list[Any]:
    """What every replica that serves, or ends its last sessions, answers; those that fail or take long are left out."""
    replicas: Sequence[ReplicaDetails] = deployment.replicas if deployment is not None else []
    names = [replica.actor_name or "" for replica in replicas if replica.state in ("RUNNING", "STOPPING")]
    return ray_private.call_replicas(names, method, PATIENCE)
