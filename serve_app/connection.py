"""Connects a command to a running Ray: that of a service on this machine, or one that is named."""

from __future__ import annotations

import os
from typing import Any

from core.errors import ConfigError, TaskSpecError
from serve_app.local_cluster import RunningService, log_options, running_services, silence_ray, use_token

AUTO = "auto"
TOKEN_HINT = "if it requires a token, set RAY_AUTH_MODE=token"


class NotReached(TaskSpecError):
    """No Ray answers at an address."""


def connect(address: str) -> Any:
    """Connect this process to the Ray cluster at `address`; what `ray.init` returns. Raises `NotReached`."""
    silence_ray()
    import ray

    try:
        return ray.init(address=address, **log_options())
    except (ConnectionError, RuntimeError, ValueError) as error:
        # Ray finds out by itself that a token is needed only if the address is `auto`.
        raise NotReached(f"no Ray cluster answers at {address} ({error}); {TOKEN_HINT}") from error


def connect_to_service(address: str | None) -> None:
    """Connect this process to the Ray at `address`, or to that of the one `taskspec serve` on this machine.

    Raises `NotReached`, and `ConfigError` if without an address there is no service here, or several.
    """
    connect(meant(address or _only(running_services()).address))


def jobs_at(address: str) -> str:
    """The URL at which the Ray at `address` takes jobs; a URL is that of a dashboard already.

    This process uses the token of a Ray of `taskspec serve`. Raises `NotReached`, and `ConfigError` for `auto` if
    several services are here.
    """
    if address.startswith(("http://", "https://")):
        return address
    address = meant(address)
    for service in running_services():
        if service.address == address:
            return service.jobs
    silence_ray()
    from ray.dashboard.utils import get_address_for_submission_client

    try:
        return get_address_for_submission_client(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise NotReached(f"no Ray cluster answers at {address} ({error}); {TOKEN_HINT}") from error


def meant(address: str) -> str:
    """The Ray that an address means to every command; this process uses its token if it is one of `taskspec serve`.

    `auto` is the cluster that this machine is a node of, by `ray start` or by RAY_ADDRESS. Without one it is the Ray of
    the one `taskspec serve` here. Raises `ConfigError` if several are.
    """
    services = running_services()
    if address == AUTO and services and not _is_node():
        address = _only(services).address
    for service in services:
        if service.address == address:
            use_token(service.token_file)
    return address


def _is_node() -> bool:
    """Whether `ray start` has made this machine a node of a cluster that still runs, or RAY_ADDRESS names one."""
    if os.environ.get("RAY_ADDRESS"):
        return True
    from ray._private.services import find_gcs_addresses
    from ray._private.utils import read_ray_address

    return read_ray_address() in find_gcs_addresses()


def _only(services: list[RunningService]) -> RunningService:
    if not services:
        raise ConfigError(
            "no `taskspec serve` is up on this machine.\n"
            "Start one, or name the Ray cluster of a service: --address HOST:PORT, or --address auto."
        )
    if len(services) > 1:
        every = "\n".join(f"  --address {service.address} for {service.url}" for service in services)
        raise ConfigError(f"several services are up on this machine. Write which:\n{every}")
    return services[0]
