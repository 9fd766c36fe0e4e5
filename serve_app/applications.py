"""Builds the Serve applications from a configuration; every deployment is bound here and nowhere else.

One application holds ingress, router and verifier; every draft pool is an application of its own (`draft-<task>`),
because `serve.run` restarts each replica of the application it touches: apart, pools come, change and go while
everything else serves on. `service` and `pool` are the doors for `serve run` and Serve config files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ray import serve
from ray.serve import Application, RunTarget

from serve_app.config import Actors, ServiceConfig, load_config, pool_application
from serve_app.draft_pool import DraftPool
from serve_app.ingress import SpeculativeIngress
from serve_app.target_verifier import TargetVerifier
from serve_app.task_router import TaskRouter

CORE = "taskspec"
DRAIN_SECONDS = 60.0  # longer than a generation takes, or downscaling would cut it
HEALTH_SECONDS = 1.0  # three failures in a row end a replica; until then one whose engine has stopped refuses calls
QUIET = {"enable_access_log": False}  # a line per request and per call of a deployment is work on the request's path


def core_application(config: ServiceConfig) -> Application:
    """Ingress, router and verifier."""
    verifier = _deployment(
        TargetVerifier,
        config.target.actors,
        max_ongoing_requests=config.target.max_sessions,
        max_queued_requests=config.target.max_queued,
    ).bind(config)
    router = None if config.router is None else _deployment(TaskRouter, config.router.actors).bind(config.router)
    ingress = _deployment(
        SpeculativeIngress, config.ingress.actors, max_ongoing_requests=config.ingress.max_ongoing_requests
    )
    return ingress.bind(config, verifier, router)


def draft_application(config: ServiceConfig, task: str, pool_class: type[DraftPool] = DraftPool) -> Application:
    """The draft replicas of one task."""
    return _deployment(
        pool_class,
        config.pools[task].actors,
        name="DraftPool",
        max_ongoing_requests=config.draft.max_sessions,
        # calls on their way to a replica count as queued: what comes at once must fit, or most of it is refused
        max_queued_requests=config.draft.max_sessions,
    ).bind(config, task)


def service(args: dict[str, str]) -> Application:
    """`serve run serve_app.applications:service config=family`; the pools are run beside it."""
    return core_application(load_config(args["config"]))


def pool(args: dict[str, str]) -> Application:
    """`serve run serve_app.applications:pool config=family task=math --name draft-math`."""
    return draft_application(load_config(args["config"]), args["task"])


def targets(config: ServiceConfig) -> list[RunTarget]:
    """Every application of the service, by name."""
    pools = [RunTarget(draft_application(config, task), pool_application(task), None) for task in config.pools]
    return [*pools, RunTarget(core_application(config), CORE, "/")]


def run(config: ServiceConfig, host: str, port: int) -> None:
    """Deploy everything on the Ray cluster this process is connected to, and wait until it serves."""
    serve.start(http_options={"host": host, "port": port}, logging_config=QUIET)
    serve.run_many(targets(config))


def _deployment(cls: Callable[..., Any], actors: Actors, **options: Any) -> serve.Deployment:
    scale: dict[str, Any] = {"num_replicas": actors.replicas}
    if actors.autoscaling is not None:
        scale = {"num_replicas": None, "autoscaling_config": actors.autoscaling.model_dump()}
    undecorated = cast(serve.Deployment, serve.deployment(cls))
    return undecorated.options(
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        health_check_period_s=HEALTH_SECONDS,
        logging_config=QUIET,
        ray_actor_options={
            "num_cpus": actors.num_cpus,
            "num_gpus": actors.num_gpus,
            "resources": actors.resources,
        },
        **scale,
        **options,
    )
