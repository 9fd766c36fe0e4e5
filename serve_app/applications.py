"""Builds the Serve applications of a service, and deploys them.

One application holds ingress and verifier. The others are the draft pools and the router (`bundle_applications`), and
the rollout, which starts those of later bundles. `service` is the entry point for `serve run`, `pool` for one pool.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence

from ray import serve
from ray.exceptions import RayError
from ray.serve import Application, RunTarget
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus

from core.errors import TaskSpecError
from core.model.cpu.openmp import TEAM
from serve_app.access.keys import check
from serve_app.access_config import KEYED
from serve_app.config import CORE, ROLLOUT, Actors, load_config
from serve_app.deployments.actors.ingress import SpeculativeIngress
from serve_app.deployments.actors.target_verifier import TargetVerifier
from serve_app.deployments.actors.verifier_router import VerifierRouter
from serve_app.deployments.deploy.bundle_applications import (
    QUIET,
    bundle_targets,
    deployment,
    draft_application,
    target,
)
from serve_app.deployments.deploy.failures import failure_of
from serve_app.deployments.deploy.rollout import Rollout
from serve_app.deployments.models.served_models import ServedModels, with_bundle

POLL_SECONDS = 0.1
TELL_SECONDS = 5.0  # for a running service to tell what it serves


class DeployFailed(TaskSpecError):
    """An application did not come up. Those that `untouched` names are as they were."""

    def __init__(self, message: str, untouched: frozenset[str]) -> None:
        super().__init__(message)
        self.untouched = untouched


def core_application(served: ServedModels) -> Application:
    """Ingress and verifier. Raises `ConfigError` if there are to be API keys and they cannot be read."""
    config = served.config
    verifier = deployment(
        TargetVerifier,
        config.target.actors,
        max_ongoing_requests=config.target.max_sessions,  # and the queue is bounded at the ingress' door
        request_router_config={"request_router_class": VerifierRouter},
        environment={} if config.target.threads == 1 else TEAM,
    ).bind(config)
    keys = {} if config.ingress.keys is None else check(config.ingress.keys)
    ingress = deployment(
        SpeculativeIngress,
        config.ingress.actors,
        max_ongoing_requests=config.ingress_requests,
        environment={} if config.ingress.keys is None else {KEYED: "1"},
    )
    return ingress.bind(served, verifier, secrets.token_bytes(32), keys)


def service(args: dict[str, str]) -> Application:
    """`serve run serve_app.applications:service config=family`; the pools are deployed separately."""
    return core_application(with_bundle(load_config(args["config"])))


def pool(args: dict[str, str]) -> Application:
    """The pool of one task: `serve.run(pool({"config": "family", "task": "math"}), name=NAME, route_prefix=None)`.

    The name must be that of the pool's application in `taskspec status`, by which the ingress finds it. `serve run`
    always opens an HTTP path, which no pool is to have.
    """
    return draft_application(with_bundle(load_config(args["config"])), args["task"])


def targets(served: ServedModels) -> list[RunTarget]:
    """Every application of the service. Only one with a directory of bundles has a rollout."""
    config = served.config
    every = [
        *bundle_targets(served),
        target(core_application(served), CORE, "/", config.target.actors, config.ingress.actors),
    ]
    if config.bundle is not None:
        rollout = deployment(Rollout, Actors(num_cpus=0)).bind(served, secrets.token_hex(8))
        every.append(RunTarget(rollout, ROLLOUT, None))
    return every


def served_now() -> ServedModels | None:
    """What the service that runs on this cluster serves; None if there is none, or if it does not tell."""
    try:
        handle = serve.get_deployment_handle(SpeculativeIngress.__name__, CORE)
        found: ServedModels = handle.served.remote().result(timeout_s=TELL_SECONDS)
    except (RayError, RayServeException, TimeoutError):
        return None
    return found


def run(applications: Sequence[RunTarget], host: str, port: int) -> Iterator[int]:
    """Deploy these on the Ray cluster this process is connected to, and yield how many of them run so far.

    A Serve that already runs there keeps its own `host` and `port`, whatever is given: see `operations.serve_listener`.
    Where a service runs already, its ingress and its verifier are replaced last, when all else runs. Raises
    `DeployFailed` if one cannot be deployed; what would have come after it stays as it is.
    """
    serve.start(http_options={"host": host, "port": port}, logging_config=QUIET)
    done, untouched = 0, frozenset(one.name for one in applications)
    for wave in _waves(applications, CORE in serve.status().applications):
        names = [one.name for one in wave]
        untouched -= set(names)
        serve.run_many(wave, wait_for_applications_running=False)
        for running in _until_all_run(names, untouched):
            yield done + running
        done += len(wave)


def _waves(applications: Sequence[RunTarget], replacing: bool) -> Iterator[list[RunTarget]]:
    if not replacing:
        yield list(applications)
        return
    yield [one for one in applications if one.name not in (CORE, ROLLOUT)]
    yield [one for one in applications if one.name in (CORE, ROLLOUT)]


def _until_all_run(names: Sequence[str], untouched: frozenset[str]) -> Iterator[int]:
    running = 0
    while running < len(names):
        time.sleep(POLL_SECONDS)
        states = serve.status().applications
        found = {name: states[name] for name in names if name in states}
        for name, state in found.items():
            if state.status == ApplicationStatus.DEPLOY_FAILED:
                raise DeployFailed(f"{name} was not deployed: {failure_of(state)}", untouched)
        running = sum(state.status == ApplicationStatus.RUNNING for state in found.values())
        yield running
