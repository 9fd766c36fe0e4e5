"""Connects a command to a running Ray: that of a service on this machine, or one that is named.

To every command an address means the same. `auto` is the cluster that this machine is a node of, by `ray start` or by
RAY_ADDRESS. Without one it is the Ray of the one `taskspec serve` here.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

from core.errors import ConfigError, TaskSpecError
from serve_app import ray_private
from serve_app.local_cluster import (
    RunningService,
    log_options,
    running_services,
    silence_ray,
    use_token,
)

AUTO = "auto"
TOKEN_HINT = "if it requires a token, set RAY_AUTH_MODE=token, and have the token in ~/.ray/auth_token"


class NotReached(TaskSpecError):
    """No Ray answers at an address."""


def connect(address: str) -> Any:
    """Connect this process to the Ray cluster at `address`; what `ray.init` returns.

    Raises `NotReached`, and `ConfigError` for `auto` if several services are here.
    """
    service = _service_at(address)
    with ExitStack() as joining:
        if service is not None:
            address = service.address
            use_token(service.token_file)
            joining.enter_context(ray_private.on_loopback())
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
    connect(address or _only(running_services()).address)


def jobs_at(address: str) -> str:
    """The URL at which the Ray at `address` takes jobs; a URL is that of a dashboard already.

    This process uses the token of a Ray of `taskspec serve`. Raises `NotReached`, and `ConfigError` for `auto` if
    several services are here.
    """
    if address.startswith(("http://", "https://")):
        return address
    service = _service_at(address)
    if service is not None:
        use_token(service.token_file)
        return service.jobs
    silence_ray()
    from ray.dashboard.utils import get_address_for_submission_client

    try:
        return get_address_for_submission_client(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise NotReached(f"no Ray cluster answers at {address} ({error}); {TOKEN_HINT}") from error


def _service_at(address: str) -> RunningService | None:
    """The service of `taskspec serve` on this machine whose Ray `address` means."""
    services = running_services()
    if address == AUTO:
        return _only(services) if services and not _is_node() else None
    return next((service for service in services if service.address == address), None)


def _is_node() -> bool:
    """Whether `ray start` has made this machine a node of a cluster that still runs, or RAY_ADDRESS names one."""
    if os.environ.get("RAY_ADDRESS"):
        return True
    silence_ray()
    return ray_private.is_node()


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
