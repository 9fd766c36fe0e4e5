"""Who `taskspec serve` would serve: it checks the API keys, and refuses to serve everybody by accident."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from core.errors import ConfigError
from serve_app.access.keys import check
from serve_app.access_config import ApiKeys
from serve_app.config import ServiceConfig


def with_keys(config: ServiceConfig, file: Path) -> ServiceConfig:
    """The configuration with this file of keys instead of its own."""
    keys = ApiKeys(file=file, env=config.ingress.keys and config.ingress.keys.env)
    return config.model_copy(update={"ingress": config.ingress.model_copy(update={"keys": keys})})


def open_to_this_command(config: ServiceConfig) -> ServiceConfig:
    """The configuration without keys and limits, for a service that one command starts for itself, on loopback."""
    return config.model_copy(update={"ingress": config.ingress.model_copy(update={"keys": None, "limits": None})})


def check_exposure(config: ServiceConfig, host: str, *, insecure: bool) -> None:
    """Raise `ConfigError` if the keys cannot be used, or if there are none and other machines could reach `host`."""
    if config.ingress.keys is not None:
        check(config.ingress.keys)
    elif not (insecure or is_loopback(host)):
        raise ConfigError(
            f"--host {host} would serve everybody who reaches this machine, as the service has no API keys.\n"
            "Make one: `taskspec keys add NAME --file keys`, and add --keys keys.\n"
            "If a firewall or a proxy decides who reaches it, add --insecure instead."
        )


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach the address; of names only `localhost` is known to be one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
