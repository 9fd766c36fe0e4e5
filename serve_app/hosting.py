"""Brings the service up, on a Ray of its own or on one that runs already, and says where it listens.

Enters: a configuration and an address to listen on. Leaves: a base URL that answers.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import httpx2 as httpx
from rich.console import Console

from core.errors import TaskSpecError
from serve_app.bundled import Served
from serve_app.config import Actors
from serve_app.local_cluster import Jobs, hush, local_cluster
from serve_app.progress import stage

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
HEALTHY_WITHIN = 60.0  # seconds


class StartFailed(TaskSpecError):
    """The service did not come up; the message is what Ray said."""


class Hosted(NamedTuple):
    """A service that this command keeps up: its base URL, and where its Ray takes jobs, if it does."""

    url: str
    jobs: Jobs | None


@contextmanager
def hosted(served: Served, host: str, port: int, console: Console, *, jobs: bool = False) -> Iterator[Hosted]:
    """The service on a Ray of its own, for as long as the block lasts.

    Raises `StartFailed`, and `ConfigError` where this machine lacks the GPUs.
    """
    every = _actors(served)
    cpus = sum(_least(actors) * actors.num_cpus for actors in every)
    gpus = sum(_least(actors) * actors.num_gpus for actors in every)
    kinds = {name for actors in every for name in actors.resources}
    with ExitStack() as cluster:
        try:
            with stage(console, "Starting Ray", "Ray of its own started"):
                takes_jobs = cluster.enter_context(local_cluster(cpus, gpus, kinds, jobs=jobs))
            yield Hosted(_deploy(served, host, port, ANYWHERE.get(host, host), console), takes_jobs)
        finally:
            with stage(console, "Stopping"):
                cluster.close()


class Deployed(NamedTuple):
    """A service on a cluster that outlives this command: its base URL, and the command that takes it down."""

    url: str
    takedown: str


def deployed(served: Served, host: str, port: int, address: str, console: Console) -> Deployed:
    """Deploy on the Ray cluster at `address`, which keeps it running. Raises `StartFailed`."""
    hush()
    import ray

    with stage(console, f"Connecting to the Ray cluster at {address}", "Connected"):
        try:
            cluster = ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        except (ConnectionError, RuntimeError, ValueError) as error:
            hint = "where it asks for a token, set RAY_AUTH_MODE=token"  # Ray finds out by itself only with `auto`
            raise StartFailed(f"no Ray cluster answers at {address} ({error}); {hint}") from error
    head = ray.get_runtime_context().gcs_address.rpartition(":")[0]
    url = _deploy(served, host, port, head if host in ANYWHERE else host, console)
    token = "RAY_AUTH_MODE=token " if os.environ.get("RAY_AUTH_MODE") == "token" else ""
    return Deployed(url, f"{token}serve shutdown --yes --address http://{cluster.dashboard_url}")


def drain() -> None:
    """Take no more requests and let the running answers end."""
    from ray import serve

    serve.shutdown()


def _deploy(served: Served, host: str, port: int, reached_at: str, console: Console) -> str:
    from serve_app import applications  # here, because Ray reads the environment when it is imported

    pools = f"{len(served.drafts)} draft pool{'s' if len(served.drafts) > 1 else ''}"
    parts = f"target{', router' if served.router else ''}, {pools} and ingress"
    url = f"http://{f'[{reached_at}]' if ':' in reached_at else reached_at}:{port}"
    with stage(console, f"Starting {parts}", f"{parts[0].upper()}{parts[1:]} started"):
        try:
            applications.run(served, host, port)
        except RuntimeError as error:
            # what an actor raised comes with the traceback of its process, and `cause` is what it said
            raise StartFailed(str(getattr(error, "cause", error))) from error
        _wait_until_healthy(url)
    return url


def _wait_until_healthy(url: str) -> None:
    """The proxy learns its routes a moment after the applications run."""
    deadline = time.monotonic() + HEALTHY_WITHIN
    with httpx.Client(base_url=url, trust_env=False, timeout=5.0) as client:
        while not _healthy(client):
            if time.monotonic() > deadline:
                raise StartFailed(f"{url}/healthz has not said ok for {HEALTHY_WITHIN:.0f} s")
            time.sleep(0.1)


def _healthy(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _actors(served: Served) -> list[Actors]:
    config = served.config
    router = [] if served.router is None else [config.router.actors]
    return [config.target.actors, *router, config.ingress.actors, *map(config.pool_actors, served.drafts)]


def _least(actors: Actors) -> int:
    return actors.replicas if actors.autoscaling is None else actors.autoscaling.min_replicas
