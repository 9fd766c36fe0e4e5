"""Connects a command to a running Ray: that of a service on this machine, or one that is named."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from core.errors import ConfigError, TaskSpecError
from serve_app.local_cluster import (
    RunningService,
    log_options,
    on_loopback,
    running_services,
    silence_ray,
    use_token,
)


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
        hint = "if it requires a token, set RAY_AUTH_MODE=token"
        raise NotReached(f"no Ray cluster answers at {address} ({error}); {hint}") from error


def connect_to_service(address: str | None) -> None:
    """Connect this process to the Ray at `address`, or to that of the one `taskspec serve` on this machine.

    Raises `NotReached`, and `ConfigError` if without an address there is no service here, or several.
    """
    services = running_services()
    address = address or _only(services).address
    with ExitStack() as joining:
        for service in services:
            if service.address == address:
                use_token(service.token_file)
                joining.enter_context(on_loopback())
        connect(address)


def jobs_of_service() -> str:
    """The URL at which the Ray of the one `taskspec serve` on this machine takes jobs; this process uses its token.

    Raises `ConfigError` if there is no service here, or several.
    """
    service = _only(running_services())
    use_token(service.token_file)
    return service.jobs


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
