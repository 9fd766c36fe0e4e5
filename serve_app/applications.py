"""Builds the Serve applications of a service; every deployment is bound here and nowhere else.

One application holds ingress, router and verifier. Each draft pool is an application of its own (`draft-<task>`):
`serve.run` restarts every replica of the application it changes, so a pool can be added, changed or removed while
everything else keeps serving. `service` and `pool` are the entry points for `serve run` and Serve config files.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, cast

from ray import serve
from ray.serve import Application, RunTarget
from ray.serve.schema import ApplicationStatus

from core.errors import ConfigError
from core.model.cpu.openmp import TEAM
from serve_app.config import CORE, Actors, load_config, pool_application
from serve_app.deployments.draft_pool import DraftPool
from serve_app.deployments.ingress import SpeculativeIngress
from serve_app.deployments.served_models import ServedModels, with_bundle
from serve_app.deployments.target_verifier import TargetVerifier
from serve_app.deployments.task_router import TaskRouter

DRAIN_SECONDS = 60.0  # longer than a generation takes, so that downscaling cuts none off
POLL_SECONDS = 0.1
HEALTH_SECONDS = 1.0  # Serve replaces a replica after three failed checks in a row
QUIET = {"enable_access_log": False}  # an access log writes a line per request and call, on the path of the request
# Models compute on threads of their own, so nothing blocks a replica's event loop, and calls need no second loop on
# another thread. That loop took 7 % of the time per token of the benchmark's target on two cores.
# Handles made in a replica, those of draft pools, call over gRPC. Bound handles, of router and verifier, use Ray's
# actor calls like the process that deploys.
ENVIRONMENT = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
}


def core_application(served: ServedModels) -> Application:
    """Ingress, router and verifier."""
    config = served.config
    verifier = _deployment(
        TargetVerifier,
        config.target.actors,
        max_ongoing_requests=config.target.max_sessions,
        max_queued_requests=config.target.max_queued,
        environment={} if config.target.threads == 1 else TEAM,
    ).bind(config)
    router = None if served.router is None else _deployment(TaskRouter, config.router.actors).bind(served.router)
    ingress = _deployment(
        SpeculativeIngress, config.ingress.actors, max_ongoing_requests=config.ingress.max_ongoing_requests
    )
    return ingress.bind(served, verifier, router, secrets.token_bytes(32))


def draft_application(served: ServedModels, task: str) -> Application:
    """The draft pool of one task. Raises `ConfigError` if the service has no such task."""
    if task not in served.drafts:
        raise ConfigError(f"no task {task!r} is served; write one of {', '.join(served.drafts)}")
    config = served.config
    return _deployment(
        DraftPool,
        config.pool_actors(task),
        max_ongoing_requests=config.draft.max_sessions,
        # Calls on their way to a replica count as queued, so the queue must hold all that arrive at once.
        max_queued_requests=config.draft.max_sessions,
    ).bind(config, task, served.drafts[task])


def service(args: dict[str, str]) -> Application:
    """`serve run serve_app.applications:service config=family`; the pools are deployed separately."""
    return core_application(with_bundle(load_config(args["config"])))


def pool(args: dict[str, str]) -> Application:
    """`serve run serve_app.applications:pool config=family task=general --name draft-general`.

    The name must be that of `pool_application`, by which the ingress finds the pool.
    """
    return draft_application(with_bundle(load_config(args["config"])), args["task"])


def targets(served: ServedModels) -> list[RunTarget]:
    """Every application of the service. `taskspec scale` may set the replicas of those that Serve does not scale."""
    config = served.config
    core = (config.target.actors, config.router.actors, config.ingress.actors)
    pools = [
        _target(draft_application(served, task), pool_application(task), None, config.pool_actors(task))
        for task in served.drafts
    ]
    return [*pools, _target(core_application(served), CORE, "/", *core)]


def _target(application: Application, name: str, route: str | None, *parts: Actors) -> RunTarget:
    """Serve takes an external scaler, or scales itself."""
    return RunTarget(application, name, route, external_scaler_enabled=all(one.autoscaling is None for one in parts))


def run(served: ServedModels, host: str, port: int) -> Iterator[int]:
    """Deploy everything on the Ray cluster this process is connected to, and yield how many applications run so far.

    Raises `RuntimeError` if one cannot be deployed.
    """
    serve.start(http_options={"host": host, "port": port}, logging_config=QUIET)
    applications = targets(served)
    serve.run_many(applications, wait_for_applications_running=False)
    running = 0
    while running < len(applications):
        time.sleep(POLL_SECONDS)
        states = serve.status().applications
        found = {target.name: states[target.name] for target in applications if target.name in states}
        for name, state in found.items():
            if state.status == ApplicationStatus.DEPLOY_FAILED:
                raise RuntimeError(f"deploying application {name} failed: {state.message}")
        running = sum(state.status == ApplicationStatus.RUNNING for state in found.values())
        yield running


def _deployment(
    cls: Callable[..., Any], actors: Actors, environment: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> serve.Deployment:
    scale: dict[str, Any] = {"num_replicas": actors.replicas}
    if actors.autoscaling is not None:
        scale = {"num_replicas": None, "autoscaling_config": actors.autoscaling}
    undecorated = cast(serve.Deployment, serve.deployment(cls))
    return undecorated.options(
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        health_check_period_s=HEALTH_SECONDS,
        logging_config=QUIET,
        ray_actor_options={
            "num_cpus": actors.num_cpus,
            "num_gpus": actors.num_gpus,
            "resources": actors.resources,
            "runtime_env": {"env_vars": {**ENVIRONMENT, **environment}},
        },
        **scale,
        **options,
    )
