"""Builds what a bundle adds to a service: applications of draft pools and a router, with replicas or autoscaling.

`serve.run` restarts every replica of the application it changes. So pools and routers, being applications of their own,
come and go while everything else keeps serving, and those of two bundles serve beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from ray import serve
from ray.serve import Application, RunTarget

from core.errors import ConfigError
from serve_app.application_names import router_application
from serve_app.config import Actors, LogFormat
from serve_app.deployments.actors.draft_pool import DraftPool
from serve_app.deployments.actors.task_router import TaskRouter
from serve_app.deployments.deploy.draft_scaling import DraftPoolScaling
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.replica_log import log_settings
from serve_app.ray_private import setup_hook
from serve_app.spans import handed_on

DRAIN_SECONDS = 60.0  # longer than most sessions last; others go on at another replica
HEALTH_SECONDS = 1.0  # Serve replaces a replica after three failed checks in a row
# Models compute on threads of their own, so nothing blocks a replica's event loop, and calls need no second loop on
# another thread. That loop took 7 % of the time per token of the benchmark's target on two cores.
# Handles made in a replica, those of pools and router, call over gRPC. Bound handles, that of the verifier, use Ray's
# actor calls like the process that deploys.
ENVIRONMENT = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    **setup_hook(),
}


def bundle_targets(served: ServedModels) -> list[RunTarget]:
    """The pools and the router."""
    config = served.config
    targets = [
        target(draft_application(served, task), served.pool(task), None, config.pool_actors(task))
        for task in served.drafts
    ]
    if served.router is not None:
        router = deployment(TaskRouter, config.router.actors, log_format=config.log_format)
        application = router.bind(served.router)
        targets.append(target(application, router_application(served.router), None, config.router.actors))
    return targets


def draft_application(served: ServedModels, task: str) -> Application:
    """The draft pool of one task. Raises `ConfigError` if the service has no such task."""
    if task not in served.drafts:
        raise ConfigError(f"no task {task!r} is served; write one of {', '.join(served.drafts)}")
    config = served.config
    return deployment(
        DraftPool,
        _scaled_by_worth(config.pool_actors(task)),
        max_ongoing_requests=config.draft.max_sessions,
        # Calls on their way to a replica count as queued, so the queue must hold all that arrive at once.
        max_queued_requests=config.draft.max_sessions,
        log_format=config.log_format,
    ).bind(config, task, served.drafts[task])


def _scaled_by_worth(actors: Actors) -> Actors:
    """The replicas of a draft pool: with autoscaling by our own policy, unless the configuration names one."""
    if actors.autoscaling is None:
        return actors
    policy = {"policy_function": DraftPoolScaling}
    return actors.model_copy(update={"autoscaling": {"policy": policy, **actors.autoscaling}})


def target(application: Application, name: str, route: str | None, *parts: Actors) -> RunTarget:
    """Serve takes an external scaler, as `taskspec scale` is one, or scales itself."""
    return RunTarget(application, name, route, external_scaler_enabled=all(part.autoscaling is None for part in parts))


def deployment(
    cls: Callable[..., Any],
    actors: Actors,
    environment: Mapping[str, str] = MappingProxyType({}),
    drain_seconds: float = DRAIN_SECONDS,
    log_format: LogFormat = "text",
    **options: Any,
) -> serve.Deployment:
    """A deployment with these replicas, as every part of a service has it. A replica that is to go ends its sessions
    first, for at most `drain_seconds`.
    """
    scale: dict[str, Any] = {"num_replicas": actors.replicas}
    if actors.autoscaling is not None:
        scale = {"num_replicas": None, "autoscaling_config": actors.autoscaling}
    undecorated = cast(serve.Deployment, serve.deployment(cls))
    return undecorated.options(
        graceful_shutdown_timeout_s=drain_seconds,
        health_check_period_s=HEALTH_SECONDS,
        logging_config=log_settings(log_format),
        ray_actor_options={
            "num_cpus": actors.num_cpus,
            "num_gpus": actors.num_gpus,
            "label_selector": actors.label_selector,
            "runtime_env": {"env_vars": {**handed_on(), **ENVIRONMENT, **environment}},
        },
        **scale,
        **options,
    )
