"""Builds the Serve applications of a service; every deployment is bound here and nowhere else.

One application holds ingress, router and verifier; every draft pool is an application of its own (`draft-<task>`),
because `serve.run` restarts each replica of the application it touches: apart, pools come, change and go while
everything else serves on. `service` and `pool` are the doors for `serve run` and Serve config files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from ray import serve
from ray.serve import Application, RunTarget

from core.errors import ConfigError
from core.openmp import TEAM
from serve_app.bundled import Served, with_bundle
from serve_app.config import Actors, load_config, pool_application
from serve_app.draft_pool import DraftPool
from serve_app.ingress import SpeculativeIngress
from serve_app.target_verifier import TargetVerifier
from serve_app.task_router import TaskRouter

CORE = "taskspec"
DRAIN_SECONDS = 60.0  # longer than a generation takes, or downscaling would cut it
HEALTH_SECONDS = 1.0  # three failures in a row end a replica; until then one whose engine has stopped refuses calls
QUIET = {"enable_access_log": False}  # a line per request and per call of a deployment is work on the request's path
# Nothing in a replica blocks its event loop: models compute on threads of their own. So calls need no second loop, on
# another thread, that wakes beside it: 7 % of the time of a token of the bench's target on two cores.
# gRPC is what handles made in a replica call by, those of draft pools; bound ones, of the router and the verifier, call
# as the process that deploys does, by Ray's actor calls.
ENVIRONMENT = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
}


def core_application(served: Served, verifier_class: type[TargetVerifier] = TargetVerifier) -> Application:
    """Ingress, router and verifier."""
    config = served.config
    verifier = _deployment(
        verifier_class,
        config.target.actors,
        name="TargetVerifier",
        max_ongoing_requests=config.target.max_sessions,
        max_queued_requests=config.target.max_queued,
        environment={} if config.target.threads == 1 else TEAM,
    ).bind(config)
    router = None if served.router is None else _deployment(TaskRouter, config.router.actors).bind(served.router)
    ingress = _deployment(
        SpeculativeIngress, config.ingress.actors, max_ongoing_requests=config.ingress.max_ongoing_requests
    )
    return ingress.bind(served, verifier, router)


def draft_application(served: Served, task: str, pool_class: type[DraftPool] = DraftPool) -> Application:
    """The draft replicas of one task. Raises `ConfigError` where the service has no such task."""
    if task not in served.drafts:
        raise ConfigError(f"no task {task!r} is served; write one of {', '.join(served.drafts)}")
    config = served.config
    return _deployment(
        pool_class,
        config.pool_actors(task),
        name="DraftPool",
        max_ongoing_requests=config.draft.max_sessions,
        # calls on their way to a replica count as queued: what comes at once must fit, or most of it is refused
        max_queued_requests=config.draft.max_sessions,
    ).bind(config, task, served.drafts[task])


def service(args: dict[str, str]) -> Application:
    """`serve run serve_app.applications:service config=family`; the pools are run beside it."""
    return core_application(with_bundle(load_config(args["config"])))


def pool(args: dict[str, str]) -> Application:
    """`serve run serve_app.applications:pool config=family task=general --name draft-general`.

    The ingress looks for the pool under the name that `pool_application` gives it.
    """
    return draft_application(with_bundle(load_config(args["config"])), args["task"])


def targets(served: Served) -> list[RunTarget]:
    """Every application of the service, by name."""
    pools = [RunTarget(draft_application(served, task), pool_application(task), None) for task in served.drafts]
    return [*pools, RunTarget(core_application(served), CORE, "/")]


def run(served: Served, host: str, port: int) -> None:
    """Deploy everything on the Ray cluster this process is connected to, and wait until it serves."""
    serve.start(http_options={"host": host, "port": port}, logging_config=QUIET)
    serve.run_many(targets(served))


def _deployment(
    cls: Callable[..., Any], actors: Actors, environment: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> serve.Deployment:
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
            "runtime_env": {"env_vars": {**ENVIRONMENT, **environment}},
        },
        **scale,
        **options,
    )
