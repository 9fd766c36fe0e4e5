"""Deploys the applications of a service on the Ray cluster of this process, and waits until they run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ray import serve
from ray.exceptions import RayError
from ray.serve import RunTarget
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus

from core.errors import TaskSpecError
from serve_app.application_names import CORE, ROLLOUT
from serve_app.config import LogFormat
from serve_app.deployments.actors.ingress import SpeculativeIngress
from serve_app.deployments.deploy.failures import failure_of
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.replica_log import log_settings

POLL_SECONDS = 0.1
TELL_SECONDS = 5.0  # for a running service to tell what it serves


class DeployFailed(TaskSpecError):
    """An application did not come up. Those that `untouched` names are as they were."""

    def __init__(self, message: str, untouched: frozenset[str]) -> None:
        super().__init__(message)
        self.untouched = untouched


def served_now() -> ServedModels | None:
    """What the service that runs on this cluster serves; None if there is none, or if it does not tell."""
    try:
        handle = serve.get_deployment_handle(SpeculativeIngress.__name__, CORE)
        served: ServedModels = handle.served.remote().result(timeout_s=TELL_SECONDS)
    except (RayError, RayServeException, TimeoutError):
        return None
    return served


def run(applications: Sequence[RunTarget], host: str, port: int, log_format: LogFormat = "text") -> Iterator[int]:
    """Deploy these on the Ray cluster this process is connected to, and yield how many of them run so far.

    A Serve that already runs there keeps its own `host` and `port`, whatever is given: see `operations.serve_listener`.
    So do its proxies the format of their log.
    Where a service runs already, its ingress and its verifier are replaced last, when all else runs. Raises
    `DeployFailed` if one cannot be deployed; what would have come after it stays as it is.
    """
    serve.start(http_options={"host": host, "port": port}, logging_config=log_settings(log_format))
    done, untouched = 0, frozenset(application.name for application in applications)
    for wave in _waves(applications, CORE in serve.status().applications):
        names = [application.name for application in wave]
        untouched -= set(names)
        serve.run_many(wave, wait_for_applications_running=False)
        for running in _until_all_run(names, untouched):
            yield done + running
        done += len(wave)


def _waves(applications: Sequence[RunTarget], replacing: bool) -> Iterator[list[RunTarget]]:
    if not replacing:
        yield list(applications)
        return
    yield [application for application in applications if application.name not in (CORE, ROLLOUT)]
    yield [application for application in applications if application.name in (CORE, ROLLOUT)]


def _until_all_run(names: Sequence[str], untouched: frozenset[str]) -> Iterator[int]:
    running = 0
    while running < len(names):
        time.sleep(POLL_SECONDS)
        states = serve.status().applications
        ours = {name: states[name] for name in names if name in states}
        for name, state in ours.items():
            if state.status == ApplicationStatus.DEPLOY_FAILED:
                raise DeployFailed(f"{name} was not deployed: {failure_of(state)}", untouched)
        running = sum(state.status == ApplicationStatus.RUNNING for state in ours.values())
        yield running
