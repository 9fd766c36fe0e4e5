"""Brings the service up, on a Ray of its own or on a running Ray cluster, and waits until it answers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

import httpx2 as httpx
from rich.console import Console

from core.errors import TaskSpecError
from serve_app.config import Actors
from serve_app.connection import connect
from serve_app.deployments.models.served_models import ServedModels
from serve_app.local_cluster import Jobs, announce, local_cluster
from serve_app.terminal.progress import step

LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # of an address that stands for every interface
HEALTHY_WITHIN = 60.0  # seconds


class StartFailed(TaskSpecError):
    """The service did not come up; the message is Ray's. The applications in `untouched` are as they were."""

    def __init__(self, message: str, untouched: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.untouched = untouched


class LocalService(NamedTuple):
    """A service that lives as long as this command: its base URL, and where its Ray takes jobs, if it does."""

    url: str
    jobs: Jobs | None


@contextmanager
def local_service(
    served: ServedModels, host: str, port: int, console: Console, *, jobs: bool = False
) -> Iterator[LocalService]:
    """Run the service on a Ray of its own for as long as the block lasts.

    Raises `StartFailed`, and `ConfigError` if this machine lacks the GPUs.
    """
    served = replace(served, config=served.config.anywhere())
    every, of_next_bundle = _actors(served)
    cpus = sum(actors.fewest * actors.num_cpus for actors in [*every, *of_next_bundle])
    gpus = sum(actors.fewest * actors.num_gpus for actors in every)
    with ExitStack() as cluster:
        try:
            with step(console, "Starting Ray on this machine", "Ray started"):
                takes_jobs = cluster.enter_context(local_cluster(cpus, gpus, jobs=jobs))
            url = _deploy(served, host, port, LOOPBACK_OF.get(host, host), console)
            if takes_jobs is not None:
                announce(url, takes_jobs)
            yield LocalService(url, takes_jobs)
        finally:
            with step(console, "Stopping the service"):
                cluster.close()


def join(address: str, console: Console) -> str:
    """Connect to the Ray cluster at `address`; the command that ends its Serve. Raises `NotReached`."""
    with step(console, f"Connecting to the Ray cluster at {address}", "Connected"):
        cluster = connect(address)
    token = "RAY_AUTH_MODE=token " if os.environ.get("RAY_AUTH_MODE") == "token" else ""
    return f"{token}serve shutdown --yes --address http://{cluster.dashboard_url}"


def cluster_service(served: ServedModels, host: str, port: int, console: Console) -> str:
    """Deploy on the Ray cluster that was joined, which keeps the service running; the service's base URL.

    A service that runs there already is replaced, or runs again if the new one does not come up. Where a Serve already
    runs, `host` and `port` are its own. Raises `ConfigError` if a node cannot read what it would load, before anything
    is changed, and `StartFailed`.
    """
    import ray

    from serve_app.deployments.deploy import preflight

    with step(console, "Asking the nodes for the models, keys and directories that they will read"):
        preflight.check(served)
    head = ray.get_runtime_context().gcs_address.rpartition(":")[0]
    return _replace(served, host, port, head if host in LOOPBACK_OF else host, console)


def drain() -> None:
    """Take no more requests and let running answers end."""
    from ray import serve

    serve.shutdown()


def _replace(served: ServedModels, host: str, port: int, reached_at: str, console: Console) -> str:
    """Deploy, and if that fails, the service that ran before again."""
    from serve_app.deployments.deploy import applications, deploy_service, nodes

    before = deploy_service.served_now()
    try:
        return _deploy(served, host, port, reached_at, console)
    except StartFailed as error:
        if before is None:
            raise
        console.print(f"The new service does not come up: {error}", highlight=False, markup=False, soft_wrap=True)
        replaced = [
            target for target in applications.targets(before, nodes.cluster()) if target.name not in error.untouched
        ]
        with step(console, "Going back to the service before", "The service before runs again"):
            try:
                for _ in deploy_service.run(replaced, host, port, before.config.log_format):
                    pass
            except (RuntimeError, TaskSpecError) as again:
                raise StartFailed(f"{error}\nNor does the service before come up again: {again}") from error
        raise StartFailed(f"{error}\nThe service before runs again.") from error


def _deploy(served: ServedModels, host: str, port: int, reached_at: str, console: Console) -> str:
    # Ray reads the environment when it is imported.
    from serve_app.deployments.deploy import applications, deploy_service, nodes

    pools = f"{len(served.drafts)} draft pool{'s' if len(served.drafts) > 1 else ''}"
    parts = f"target{', router' if served.router else ''}, {pools} and ingress"
    url = f"http://{f'[{reached_at}]' if ':' in reached_at else reached_at}:{port}"
    every = applications.targets(served, nodes.cluster())
    with step(console, f"Loading {parts}", f"{parts[0].upper()}{parts[1:]} ready", len(every)) as loading:
        try:
            for ready in deploy_service.run(every, host, port, served.config.log_format):
                loading.reach(ready)
        except deploy_service.DeployFailed as error:
            raise StartFailed(str(error), error.untouched) from error
        except RuntimeError as error:
            # The exception of an actor is wrapped in one with the traceback of its process; `cause` is the original.
            raise StartFailed(str(getattr(error, "cause", error))) from error
        _wait_until_healthy(url)
    return url


def _wait_until_healthy(url: str) -> None:
    """Serve's proxy learns its routes a moment after the applications run."""
    deadline = time.monotonic() + HEALTHY_WITHIN
    with httpx.Client(base_url=url, trust_env=False, timeout=5.0) as client:
        while not _healthy(client):
            if time.monotonic() > deadline:
                raise StartFailed(f"{url}/healthz has not answered 200 for {HEALTHY_WITHIN:.0f} s")
            time.sleep(0.1)


def _healthy(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _actors(served: ServedModels) -> tuple[list[Actors], list[Actors]]:
    """Those of the service, and those that a new bundle starts beside them."""
    config = served.config
    router = [] if served.router is None else [config.router.actors]
    of_bundle = [*router, *map(config.pool_actors, served.drafts)]
    return [config.target.actors, config.ingress.actors, *of_bundle], of_bundle
